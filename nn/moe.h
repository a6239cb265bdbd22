// Moe: a mixture of experts in the place of an Mlp (Shazeer et al. 2017). E small Mlps, of which each token passes
// through the K that its router chose:
//
//   y = sum over the chosen e of gate_e * expert_e(x)  +  shared(x)
//
// What is split, and why:
//
//   ep   each rank holds E/ep experts; tokens travel to them and back by all-to-all (Lepikhin et al. 2021, GShard). ep
//        is folded out of the data-parallel ranks: an expert's gradient is complete for the tokens of its ep group, and
//        is summed over edp, the ranks that hold the same experts.
//   tp   every expert is split by its hidden units, as an Mlp is. All tp ranks must therefore see all tokens: under
//        sequence parallelism they are gathered over tp first, and then every tp rank takes its copy to the ranks of
//        its own ep group. (Dispatching T/tp tokens and gathering behind the all-to-all would send tp times less over
//        ep, but K times more over tp.) Gates are applied before the sum over tp: one token is summed, not K answers.
//
// The router works on the positions that the residual stream has here; its weight is placed beside it.
// Read next: nn/router.h (who goes where), nn/expert_capacity.h (who is dropped), nn/expert_dispatch.h (the journey).
#pragma once

#include <memory>

#include "nn/expert_dispatch.h"
#include "nn/mlp.h"
#include "nn/router.h"

namespace trireme::nn {

struct MoeOptions {
  MlpOptions expert;  ///< of one expert; hidden is F
  ExpertsOptions experts;
};

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
