// Moe: a mixture of experts instead of an Mlp (Shazeer et al. 2017). There are E small Mlps; each token passes
// through the K that the router chose for it:
//
//   y = sum over the chosen e of gate_e * expert_e(x)  +  shared(x)
//
// What is split, and why:
//
//   ep   each rank holds E/ep experts; tokens travel to them and back by all-to-all (Lepikhin et al. 2021, GShard). The
//        data-parallel ranks are divided into groups of ep ranks: an expert's gradient is complete for the tokens of
//        its group, and is summed over edp, the ranks that hold the same experts.
//   tp   every expert is split by its hidden units, as an Mlp is. All tp ranks must therefore see all tokens: under
//        sequence parallelism they are gathered over tp first, and then every tp rank takes its copy to the ranks of
//        its own ep group. (Dispatching T/tp tokens and gathering after the all-to-all would send tp times less over
//        ep, but K times more over tp.) Gates are applied before the sum over tp, so that one row per token is summed,
//        not K.
//
// The router works on this rank's positions of the residual stream; its weight is placed as
// Build::per_position_placement().
// Read next: nn/router.h (the choice of experts), nn/expert_capacity.h (dropped tokens), nn/expert_dispatch.h (the
// exchange).
#pragma once

#include <memory>

#include "nn/expert_dispatch.h"
#include "nn/mlp.h"
#include "nn/router.h"

namespace trireme::nn {

/// Sizes and choices of a Moe.
struct MoeOptions {
  MlpOptions expert;  ///< of one expert; hidden is F
  ExpertsOptions experts;
};

/// A mixture of experts; experts are split over ep. See the top of this file.
/// @snippet modules_test.cpp moe
class Moe : public Module {
 public:
  Moe(const Build& b, const MoeOptions& options);
  Tensor forward(const Tensor& x) override;  // residual [B, T, D] -> [B, T, D]

 private:
  Tensor apply_experts(const Tensor& rows, const std::vector<std::int64_t>& starts) const;

  MoeOptions options_;
  Placement residual_;
  Router router_;
  ParameterPtr up_, up_bias_;      // [E/ep, F/tp, D], [E/ep, F/tp]; gated [E/ep, 2, F/tp, D], [E/ep, 2, F/tp]
  ParameterPtr down_, down_bias_;  // [E/ep, D, F/tp], [E/ep, D]
  std::unique_ptr<Mlp> shared_;
};

}  // namespace trireme::nn
