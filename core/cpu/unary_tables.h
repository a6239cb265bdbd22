// The unary functions of 16-bit elements by tables. A 16-bit type has 65536 numbers, so a table of all results costs
// 128 KiB, and 50 us once; then an element costs a load instead of an exponential, with the same bits. Tables are made
// on first use, and stay.
// Read next: elementwise.cpp.
#pragma once

#include "core/cpu/unary_rows.h"

namespace trireme::cpu {

/// As unary_row(op), and the same bits, for `elements` elements in all: by a table if the type has 16 bits, the
/// function takes more than a few instructions, and there are enough elements to pay for the table.
template <class T>
UnaryRow<T> unary_row(Unary op, std::int64_t elements);
template <class T>
UnaryBackwardRow<T> unary_backward_row(Unary op, std::int64_t elements);

}  // namespace trireme::cpu
