// Sums, differences and products of i32 tensors, such as ids, positions and lengths. They are computed on the host, and
// not recorded for backward. Comparisons of i32 tensors give f32 masks: autograd/compare.cpp. Read next:
// autograd/elementwise.cpp (the caller).
#pragma once

#include "core/kernels.h"
#include "core/tensor.h"

namespace trireme {

/// Whether both are i32. Other whole dtypes have no arithmetic.
inline bool are_whole(const Tensor& a, const Tensor& b) {
  return a.defined() && b.defined() && a.dtype() == DType::i32 && b.dtype() == DType::i32;
}

/// a op b in i32, of two i32 tensors that broadcast; op is add, subtract or multiply. Throws ExitCode::data, naming
/// `where`, if a result is no i32, and ExitCode::internal for tensors that are not on the host.
Tensor whole_numbers(Binary op, const Tensor& a, const Tensor& b, const char* where);
/// `value` as an i32 tensor []. Throws ExitCode::internal if it is no i32.
Tensor whole_number(double value, const char* where);

}  // namespace trireme
