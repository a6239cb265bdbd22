// What each function of Binary should be, in f64, for the tests of its kernels.
// Read next: core/formulas.h, which is tested.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/kernels.h"

namespace trireme::testing {

inline double exact_binary(Binary op, double a, double b) {
  switch (op) {
    case Binary::add:
      return a + b;
    case Binary::subtract:
      return a - b;
    case Binary::multiply:
      return a * b;
    case Binary::divide:
      return a / b;
    case Binary::equal:
      return a == b ? 1 : 0;
    case Binary::not_equal:
      return a != b ? 1 : 0;
    case Binary::less:
      return a < b ? 1 : 0;
    case Binary::less_equal:
      return a <= b ? 1 : 0;
    case Binary::maximum:
      return std::max(a, b);
    case Binary::minimum:
      return std::min(a, b);
    case Binary::power:
      return std::pow(a, b);
  }
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace trireme::testing
