// The passes of norms whose statistics cover several rows: batch norm and group norm, where a row is one channel of one
// sample. x, dy [R, P] dense, T; the numbers of a row [R] dense, acc. Bytes: every pass reads its inputs once, and
// writes its result once. Read next: autograd/row_norm.h, which has the same functions for every device.
#pragma once

#include "core/tensor.h"

namespace trireme::cpu {

/// sums[r] = sum of x[r].
void row_sums(const Tensor& x, Tensor& sums);
/// squares[r] = sum of (x[r] - centre[r])^2.
void row_squares(const Tensor& x, const Tensor& centre, Tensor& squares);
/// sums[r] = sum of dy[r], products[r] = sum of dy[r] (x[r] - centre[r]).
void row_products(const Tensor& dy, const Tensor& x, const Tensor& centre, Tensor& sums, Tensor& products);
/// y = (x - centre) factor + shift.
void scale_rows(const Tensor& x, const Tensor& centre, const Tensor& factor, const Tensor& shift, Tensor& y);
/// dx = dy a + (x - centre) b + c.
void combine_rows(const Tensor& dy, const Tensor& x, const Tensor& centre, const Tensor& a, const Tensor& b,
                  const Tensor& c, Tensor& dx);

/// Group norm of groups of `each` neighbouring rows, C / each of them in each sample: y = (x - mean) rstd gamma + beta,
/// with mean and variance over the each * P elements of a group; rstd = 1 / sqrt(variance + eps). gamma, beta [C],
/// mean, rstd [R / each]: acc. A group is read four times, and stays in the cache if it is small enough.
void group_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, std::int64_t each, double eps, Tensor& y,
                Tensor& mean, Tensor& rstd);
/// Its gradients: dx, and the sums and products of row_products().
void group_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& gamma, const Tensor& mean, const Tensor& rstd,
                         std::int64_t each, Tensor& dx, Tensor& sums, Tensor& products);

}  // namespace trireme::cpu
