// What the tests of train/ share.
#pragma once

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "core/error.h"

namespace trireme::testing {

/// The message of the Error that `call` throws, after "CODE "; "nothing" when it throws none.
template <class Call>
std::string failure(Call call) {
  try {
    call();
  } catch (const Error& error) { return fmt::format("{} {}", static_cast<int>(error.code()), error.what()); }
  return "nothing";
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// A fresh folder that disappears with the test case.
struct Folder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / fmt::format("trireme_train_test.{}", ::getpid());
  Folder() {
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
};

}  // namespace trireme::testing
