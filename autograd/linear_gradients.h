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
///
/// row_sums: if defined, [out] f32: receives the sum of dy's rows when the product runs.
Tensor weight_gradient(const Op& op, int input, const Tensor& x, const Tensor& dy, const Shape& shape,
                       const Tensor& row_sums = {});

/// The gradients of a layer's weight and bias, inputs `weight` and `weight + 1` of op, as far as these need one. In
/// gradients[weight] dW, as by weight_gradient; in gradients[weight + 1] db, the sum of dy's rows, in `bias_shape`. x
/// may be undefined if the weight needs no gradient.
///
/// On CUDA in 16 bits, the product of dW gives db too (GemmOptions::row_sums), so that dy is read once. If the product
/// is deferred, db has its values only after it. Then the bias's gradient must be deferred too: it is added to its sum
/// after the product. If it is not deferred, db is computed at once.
void layer_gradients(const Op& op, int weight, const Tensor& x, const Tensor& dy, const Shape& weight_shape,
                     const Shape& bias_shape, Gradients& gradients);

}  // namespace trireme
