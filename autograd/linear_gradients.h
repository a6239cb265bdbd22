// The gradients of a linear layer's input, weight and bias; for linear and mlp.
// Read next: autograd/deferred.h (when the product runs).
#pragma once

#include "autograd/node.h"
#include "autograd/op.h"
#include "core/tensor.h"

namespace trireme {

/// dx = dy W in the shape of x; dy [N, out], weight [out, in], is_weight as b_is_weight of GemmOptions.
Tensor input_gradient(const Tensor& dy, const Tensor& weight, bool is_weight, const Shape& shape);

/// dW = dy^T x of input `input` of op, whose shape is `shape`; x [N, in], dy [N, out]. Into a parameter's f32 gradient
/// the product accumulates by itself: no [out, in] temporary, and one rounding less in bf16; it may wait, and then
/// keeps x and dy. -> undefined then, else the gradient. Gradients are in op.gradient_dtype(input, ..): f32 for
/// parameters.
Tensor weight_gradient(const Op& op, int input, const Tensor& x, const Tensor& dy, const Shape& shape);

/// The sum of dy's rows [N, out] -> a tensor of `shape`, out elements: the gradient of input `input` of op.
Tensor bias_gradient(const Op& op, int input, const Tensor& dy, const Shape& shape);

}  // namespace trireme
