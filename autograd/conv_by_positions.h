// Convolution with the kernels that every device has: a sum over kernel positions (r, s) of products with a view of the
// padded input, strided by the convolution's stride. It copies each view, so it moves R S times the input through
// memory. The CPU has a faster form, core/cpu/conv.h, and is tested against this one; CUDA uses this one.
// All tensors are dense and of one floating dtype; sums are in accumulate_dtype.
// Read next: autograd/conv.cpp.
#pragma once

#include "core/conv_geometry.h"
#include "core/tensor.h"

namespace trireme {

/// y [N, O, OH, OW], without bias.
Tensor conv2d_by_positions(const Tensor& x, const Tensor& weight, const ConvGeometry& g);
/// dx [N, C, H, W].
Tensor conv2d_input_gradient_by_positions(const Tensor& dy, const Tensor& weight, const ConvGeometry& g);
/// dw [O, C / groups, R, S] in `dtype`.
Tensor conv2d_weight_gradient_by_positions(const Tensor& x, const Tensor& dy, const ConvGeometry& g, DType dtype);

}  // namespace trireme
