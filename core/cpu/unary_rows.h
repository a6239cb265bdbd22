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

// A 16-bit type has 65536 numbers, so a table of all results costs 128 KiB, and 50 us once; then an element costs a
// load instead of an exponential, with the same bits. Tables are made on first use, and stay.

/// As unary_row(op), and the same bits, for `elements` elements in all: by a table if the type has 16 bits, the
/// function takes more than a few instructions, and there are enough elements to pay for the table.
template <class T>
UnaryRow<T> unary_row(Unary op, std::int64_t elements);
template <class T>
UnaryBackwardRow<T> unary_backward_row(Unary op, std::int64_t elements);

}  // namespace trireme::cpu
