// The largest of many errors. Tests of kernels include only this: tests/support/elements.h needs tensors.
// Read next: tests/support/elements.h.
#pragma once

#include <cmath>
#include <limits>

namespace trireme::testing {

/// Makes `largest` the larger of itself and `x`, and infinity if either is NaN. std::max would drop a NaN, and the test
/// would pass.
inline void keep_largest(double& largest, double x) {
  if (std::isnan(largest) || std::isnan(x))
    largest = std::numeric_limits<double>::infinity();
  else if (x > largest)
    largest = x;
}

}  // namespace trireme::testing
