// What the product tests share: the size of a rounding. It also includes the headers that make, read and compare
// tensors.
// Read next: tests/products/gemm_test.cpp.
#pragma once

#include "core/dtype.h"
#include "tests/support/elements.h"
#include "tests/support/team.h"
#include "tests/support/tensors.h"

namespace trireme::testing {

/// Half the distance from 1 to the next number: the relative error of one rounding.
inline double rounding(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 0x1p-53;
    case DType::f32:
      return 0x1p-24;
    case DType::bf16:
      return 0x1p-8;
    default:
      return 0x1p-11;
  }
}
inline DType accumulator(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

}  // namespace trireme::testing
