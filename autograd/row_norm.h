// Passes over x for norms whose statistics cover several rows, on every device: batch norm (nn/batch_norm.cpp) and
// group norm (autograd/group_norm.cpp). A row is one channel of one sample. These functions are not differentiable:
// forwards and backwards of operations call them. On the CPU each is one pass (core/cpu/row_norm.h); other devices
// compose it of kernels of the kernel table.
// x, dy [R, P] dense; numbers of rows [R], in accumulate_dtype.
#pragma once

#include <utility>

#include "core/tensor.h"

namespace trireme {

/// x [N, C, ..] as rows [N C, P].
Tensor channel_rows(const Tensor& x);
/// Numbers of each channel [C], or of each sample and group [N, G], as numbers of rows [N C].
Tensor for_each_row(const Tensor& numbers, std::int64_t samples, std::int64_t channels);

Tensor row_sums(const Tensor& x);                           ///< [R]
Tensor row_squares(const Tensor& x, const Tensor& centre);  ///< [R]: sums of (x - centre)^2
/// [R] each: sums of dy, and of dy (x - centre).
std::pair<Tensor, Tensor> row_products(const Tensor& dy, const Tensor& x, const Tensor& centre);
/// (x - centre) factor + shift, in x's dtype.
Tensor scale_rows(const Tensor& x, const Tensor& centre, const Tensor& factor, const Tensor& shift);
/// dy a + (x - centre) b + c, in x's dtype.
Tensor combine_rows(const Tensor& dy, const Tensor& x, const Tensor& centre, const Tensor& a, const Tensor& b,
                    const Tensor& c);

namespace by_table {  // for devices without the passes; on the CPU, for tests
Tensor row_squares(const Tensor& x, const Tensor& centre);
std::pair<Tensor, Tensor> row_products(const Tensor& dy, const Tensor& x, const Tensor& centre);
Tensor scale_rows(const Tensor& x, const Tensor& centre, const Tensor& factor, const Tensor& shift);
Tensor combine_rows(const Tensor& dy, const Tensor& x, const Tensor& centre, const Tensor& a, const Tensor& b,
                    const Tensor& c);
}  // namespace by_table

}  // namespace trireme
