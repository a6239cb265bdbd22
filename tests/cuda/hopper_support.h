// What the tests of Hopper's instructions share: values that tell where they come from, and a comparison that prints
// what was expected and what came instead. Wrong layouts then show as "expected A[3, 17], got A[17, 3]".
// Read next: tests/cuda/hopper_tma_test.cpp.
#pragma once

#include <cstdio>
#include <functional>
#include <string>

#include <fmt/core.h>

#include "cuda/device/tensor_map.h"
#include "tests/cuda/support.h"

namespace cuda_test {

/// Distinct values that f16 holds exactly, none of them 0: of i from 0 to 4095.
inline float coded(int i) { return static_cast<float>(i < 2048 ? i - 2048 : i - 2047); }
/// The i of coded(i), or -1.
inline int decoded(double value) {
  for (int i = 0; i < 4096; ++i)
    if (value == static_cast<double>(coded(i))) return i;
  return -1;
}

struct Comparison {
  std::string what;
  std::size_t count;
  std::function<double(std::size_t)> got, expected;
  std::function<std::string(std::size_t)> place;  ///< of element i
  std::function<std::string(double)> meaning;     ///< of a value
};

/// Compares bit for bit. Prints one line, and the first elements that differ; these fail the test.
inline void compare(const Comparison& c) {
  std::size_t wrong = 0;
  std::string first;
  for (std::size_t i = 0; i < c.count; ++i) {
    const double got = c.got(i), expected = c.expected(i);
    if (got == expected) continue;
    if (++wrong <= 6)
      first += fmt::format("\n  {}: expected {} ({}), got {} ({})", c.place(i), expected, c.meaning(expected), got,
                           c.meaning(got));
  }
  std::printf("%s: %zu of %zu values as expected%s\n", c.what.c_str(), c.count - wrong, c.count, first.c_str());
  std::fflush(stdout);
  CHECK_MESSAGE(wrong == 0, c.what << ": " << wrong << " of " << c.count << " values are wrong" << first);
}

}  // namespace cuda_test
