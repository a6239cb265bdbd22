// The gradients of a linear layer's input, weight and bias; for linear and mlp.
// Read next: autograd/deferred.h (when the weight's product runs).
#pragma once

#include "autograd/node.h"
#include "autograd/op.h"
#include "core/tensor.h"

namespace trireme {

/// dx = dy W, in `shape`, the shape of x; dy [N, out], weight [out, in]; is_weight: see GemmOptions::b_is_weight.
Tensor input_gradient(const Tensor& dy, const Tensor& weight, bool is_weight, const Shape& shape);

/// dW = dy^T x, the gradient of input `input` of op, in `shape`, that input's shape; x [N, in], dy [N, out]. If the
/// input is a leaf, the product adds to the leaf's gradient itself: this saves an [out, in] temporary and, in bf16, one
/// rounding. The product may then be deferred (autograd/deferred.h), and keeps x and dy until it runs. Returns an
/// undefined tensor if the input is a leaf, else the gradient in op.gradient_dtype(input, ..).
Tensor weight_gradient(const Op& op, int input, const Tensor& x, const Tensor& dy, const Shape& shape);

/// The sum of dy's rows [N, out] -> a tensor of `shape`, out elements: the gradient of input `input` of op.
Tensor bias_gradient(const Op& op, int input, const Tensor& dy, const Shape& shape);

}  // namespace trireme
