// Searches texts: messages, reports and what programs print.
// Read next: tests/support/errors.h, which shows a text that lacks what it should say.
#pragma once

#include <string_view>

namespace trireme::testing {

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// How often `part` occurs, counted from left to right without overlap.
inline int occurrences(std::string_view text, std::string_view part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

}  // namespace trireme::testing
