// Losses between tensors of one shape, with the names and formulas of torch.nn.functional. The loss over classes is in
// nn/cross_entropy.h.
//
//   const double scale = 1.0 / (global_batch * outputs);  // the elements of the whole global batch
//   const Tensor loss = nn::mse_loss(model(x), batch["y"], scale);
//
// Each returns scale * the sum of the losses of all elements: a scalar [] in f32 (f64 for f64 inputs), computed in that
// dtype. `scale` is one over the number of elements of the *global* batch, over all micro-batches and ranks. A mean
// over the elements of one rank would depend on the mesh (docs/writing_a_model.md, rule 3). PyTorch's reduction="mean"
// is scale = 1 / count on one rank, "sum" is 1.
//
// prediction and target must have the same shape and dtype; they are not broadcast. Gradients reach both, except where
// a function says that its target has none.
// Read next: nn/cross_entropy.h.
#pragma once

#include "core/tensor.h"

namespace trireme::nn {

/// (prediction - target)^2
/// @snippet modules_test.cpp losses
Tensor mse_loss(const Tensor& prediction, const Tensor& target, double scale);

/// |prediction - target|; its gradient is 0 where they are equal.
Tensor l1_loss(const Tensor& prediction, const Tensor& target, double scale);

/// With d = prediction - target: d^2 / 2 if |d| <= delta, else delta (|d| - delta / 2). delta > 0 (Huber 1964).
Tensor huber_loss(const Tensor& prediction, const Tensor& target, double scale, double delta = 1);

/// huber_loss / beta with delta = beta; l1_loss if beta is 0 (Girshick 2015, "Fast R-CNN", equation 3).
Tensor smooth_l1_loss(const Tensor& prediction, const Tensor& target, double scale, double beta = 1);

/// Weights of the loss.
struct BinaryCrossEntropyOptions {
  Tensor weight{};      ///< multiplies the loss of each element; broadcasts to the logits; undefined: 1
  Tensor pos_weight{};  ///< multiplies the term of target 1; broadcasts to the logits; undefined: 1
};
/// -target log sigmoid(x) - (1 - target) log(1 - sigmoid(x)), of logits x. Exact for logits of any size, because
/// log sigmoid(x) is computed as min(x, 0) - log(1 + exp(-|x|)). Targets are probabilities, 0 to 1, and have no
/// gradient.
Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target, double scale,
                                        const BinaryCrossEntropyOptions& options = {});

/// The divergence of the target from the prediction: target (log target - log_prediction), 0 where the target is 0 (NaN
/// if log_prediction is -infinity there, as in PyTorch).
/// log_prediction: logarithms of probabilities. target: probabilities, which have no gradient; with log_target their
/// logarithms, which have one. PyTorch's reduction="batchmean" is scale = 1 / rows.
Tensor kl_div(const Tensor& log_prediction, const Tensor& target, double scale, bool log_target = false);

}  // namespace trireme::nn
