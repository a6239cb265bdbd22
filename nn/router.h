// Router: which experts compute a token, how much each counts, and the losses that keep the choice healthy.
//
//   logits = x W^T in f32;  the K largest win, the lower index among equals; with a bias (nn/routing.h), the K largest
//   of softmax(logits) + bias, which has no part in the gates
//
// Two losses of the router's own, both means over the whole global batch, so that neither the mesh nor the cutting into
// micro-batches changes them:
//
//   balance  E sum_e f_e P_e, with f_e the part of a sequence's choices that fell on expert e, and P_e the mean
//            probability of e; 1 when all experts are used equally (Fedus et al. 2022, section 2.2, per sequence as in
//            DeepSeek-V2, section 2.1.3). f comes from counts and has no gradient.
//   z        the mean of logsumexp(logits)^2, which keeps logits small (Zoph et al. 2022, section 3.3)
//
// They are attached to the gates: their gradients join on the way back, on whichever pipeline stage the router is, and
// the loss that is reported stays the language model's.
#pragma once

#include "nn/experts_options.h"
#include "nn/module.h"

namespace trireme::nn {

class Router : public Module {
 public:
  Router(const Build& b, std::int64_t width, const ExpertsOptions& options, double init_std);

  Tensor forward(const Tensor& x) override;  // residual [B, T, D] -> logits [B, T, E] f32

  struct Choice {
    Tensor expert;  ///< [B, T, K] i32, the largest first; on the CPU, which sends tokens to experts
    Tensor gate;    ///< [B, T, K] f32
  };
  /// For the positions of the residual stream that this rank holds.
  Choice choose(const Tensor& x);

 private:
  Tensor own_losses(const Tensor& logits, const Tensor& probabilities, const Tensor& counts);
  Tensor balance_loss(const Tensor& probabilities, const Tensor& own_counts, double sequences, double length) const;

  ExpertsOptions options_;
  Parallelism parallelism_;
  ParameterPtr weight_;  // [E, D]
  Routing& routing_;
};

/// The K largest of each row of x [.., E], largest first; among equals the lower index. -> [.., K] i32, where x is
Tensor top_k(const Tensor& x, std::int64_t k);

}  // namespace trireme::nn
