// What the tests of the data layer share: a temporary folder, errors caught for inspection, and random text.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <string_view>

#include "core/error.h"
#include "data/utf8.h"

namespace trireme::testing {

/// A fresh folder, removed with all it holds.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "trireme_data_XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Without write_file's sync, which costs tens of milliseconds: for tests that write hundreds of files.
inline void write_plainly(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

struct Caught {
  ExitCode code = ExitCode::ok;
  std::string message;
  bool has(std::string_view part) const { return message.find(part) != std::string::npos; }
};

/// What f throws as an Error; code ok and no message when it throws nothing.
template <class F>
Caught caught(F&& f) {
  try {
    f();
  } catch (const Error& error) { return {error.code(), error.what()}; }
  return {};
}

/// `count` characters from all planes of Unicode, with plenty of spaces, letters and digits.
inline std::string random_text(std::mt19937_64& random, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    char32_t value = 0;
    switch (random() % 8) {
      case 0:
        value = U' ';
        break;
      case 1:
        value = U"\n\t\r\u00A0\u2003\u3000 '"[random() % 8];
        break;
      case 2:
        value = U'0' + static_cast<char32_t>(random() % 10);
        break;
      case 3:
        value = 0x80 + static_cast<char32_t>(random() % 0x700);
        break;
      case 4:
        value = 0x800 + static_cast<char32_t>(random() % 0xD000);
        break;
      case 5:
        value = 0x10000 + static_cast<char32_t>(random() % 0x100000);
        break;
      default:
        value = U'a' + static_cast<char32_t>(random() % 6);
        break;
    }
    append_utf8(text, value);
  }
  return text;
}

inline std::string random_bytes(std::mt19937_64& random, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(random() & 0xFF);
  return bytes;
}

/// Files on disk that a test may need, named by the environment; empty when there are none.
inline std::filesystem::path test_data_folder() {
  const char* folder = std::getenv("TRIREME_TEST_DATA");
  return folder == nullptr ? std::filesystem::path() : std::filesystem::path(folder);
}

}  // namespace trireme::testing
