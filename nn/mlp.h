// Mlp: project up, apply the activation, project down. The hidden [.., F] is split over tp and never leaves its rank.
//
//   plain   down(activation(up(x)))
//   gated   down(silu(gate(x)) * up(x)), SwiGLU (Shazeer 2020): gate and up are one weight gate_up [2, F, D]. With
//           another function than silu, MlpOptions::gate, it is GeGLU (gelu), as in Gemma
// Read next: nn/mlp.cpp, autograd/mlp.cpp.
#pragma once

#include <optional>

#include "nn/linear.h"

namespace trireme::nn {

/// Sizes and choices of an Mlp.
struct MlpOptions {
  std::int64_t width = 0;          ///< D
  std::int64_t hidden = 0;         ///< F
  Unary activation = Unary::gelu;  ///< of a plain Mlp
  bool bias = true;
  double init_std = 0.02;                    ///< initial weights of `up`
  double residual_init_std = 0.02;           ///< initial weights of `down`, which writes into the residual stream
  std::optional<Unary> gate = std::nullopt;  ///< of a gated Mlp, which has no `activation`; not set: a plain one
};

class Mlp : public Module {
 public:
  Mlp(const Build& b, const MlpOptions& options);
  Tensor forward(const Tensor& x) override { return do_forward_add({}, x); }  // [B, T, D] -> [B, T, D]

 protected:
  Tensor do_forward_add(const Tensor& residual, const Tensor& x) override;  ///< residual may be undefined

 private:
  Unary activation_;
  std::optional<Unary> gate_;
  Linear up_, down_;
};

}  // namespace trireme::nn
