// The unary functions on rows, for kernels that apply a function to their own results. Read next: elementwise.cpp.
#pragma once

#include <cstdint>

#include "core/kernels.h"

namespace trireme::cpu {

/// y = op(x) of n elements; y may be x.
template <class T>
using UnaryRow = void (*)(std::int64_t n, const T* x, T* y);
template <class T>
UnaryRow<T> unary_row(Unary op);

/// dx = op'(x) dy of n elements; dx may be dy.
template <class T>
using UnaryBackwardRow = void (*)(std::int64_t n, const T* x, const T* dy, T* dx);
template <class T>
UnaryBackwardRow<T> unary_backward_row(Unary op);

}  // namespace trireme::cpu
