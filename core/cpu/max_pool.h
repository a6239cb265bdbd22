// Max pooling on the CPU. Bytes: forward reads x and writes y and an i32 for each output; backward reads dy and those,
// and writes dx. Read next: autograd/pool.h.
#pragma once

#include "core/conv_geometry.h"
#include "core/tensor.h"

namespace trireme::cpu {

/// y [N, C, OH, OW] = the largest element of each window of x [N, C, H, W]; chosen, of y's shape, i32: its place in its
/// plane, row * W + column. Among equals the first comes first, row by row; NaN counts as larger than any number. All
/// dense; g.groups and channels of a weight are not used.
void max_pool(const Tensor& x, const ConvGeometry& g, Tensor& y, Tensor& chosen);
/// dx = the sum of the dy that chose each element. Sums are in accumulate_t<T>.
void max_pool_backward(const Tensor& dy, const Tensor& chosen, const ConvGeometry& g, Tensor& dx);

}  // namespace trireme::cpu
