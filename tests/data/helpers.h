// Shared by the tests of the data layer: random text, and where real data may be.
// Read next: tests/support/files.h, tests/support/errors.h.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>

#include "data/utf8.h"

namespace trireme::testing {

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

/// The folder of files that some tests need, from TRIREME_TEST_DATA; empty if that is not set.
inline std::filesystem::path test_data_folder() {
  const char* folder = std::getenv("TRIREME_TEST_DATA");
  return folder == nullptr ? std::filesystem::path() : std::filesystem::path(folder);
}

}  // namespace trireme::testing
