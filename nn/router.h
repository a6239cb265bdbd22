// Router: which experts compute a token, how much each counts, and the auxiliary losses of this choice.
//
//   logits = x W^T in f32;  the K largest are chosen, the lower index among equals; with a bias (nn/routing.h), the K
//   largest of softmax(logits) + bias, but gates are computed without the bias
//
// The router has two losses of its own, both means over the whole global batch, so that they depend neither on the mesh
// nor on the number of micro-batches:
//
//   balance  E sum_e f_e P_e, with f_e the part of a sequence's choices that fell on expert e, and P_e the mean
//            probability of e; 1 when all experts are used equally (Fedus et al. 2022, section 2.2, per sequence as in
//            DeepSeek-V2, section 2.1.3). f comes from counts and has no gradient. With BalanceScope::batch, f_e is the
//            part of the choices of the whole global batch.
//   z        the mean of logsumexp(logits)^2, which keeps logits small (Zoph et al. 2022, section 3.3)
//
// They are attached to the gates (with_auxiliary_loss()): backward adds their gradients on the router's own pipeline
// stage, and the reported loss stays the language model's.
// Read next: nn/routing.h, nn/moe.h.
#pragma once

#include "nn/experts_options.h"
#include "nn/module.h"

namespace trireme::nn {

class Router : public Module {
 public:
  Router(const Build& b, std::int64_t width, const ExpertsOptions& options, double init_std);

  Tensor forward(const Tensor& x) override;  // residual [B, T, D] -> logits [B, T, E] f32

  /// The result of choose().
  struct Choice {
    Tensor expert;  ///< [B, T, K] i32, the largest first; on the CPU, which plans the dispatch
    Tensor gate;    ///< [B, T, K] f32
  };
  /// The choices for this rank's positions of the residual stream.
  Choice choose(const Tensor& x);

 private:
  Tensor own_losses(const Tensor& logits, const Tensor& probabilities, const Tensor& counts);
  Tensor balance_loss(const Tensor& probabilities, const Tensor& own_counts, double sequences, double length) const;

  ExpertsOptions options_;
  Parallelism parallelism_;
  ParameterPtr weight_;  // [E, D]
  Routing& routing_;
};

/// The K largest of each row of x [.., E], largest first; among equals the lower index. -> [.., K] i32, on x's device
Tensor top_k(const Tensor& x, std::int64_t k);

}  // namespace trireme::nn
