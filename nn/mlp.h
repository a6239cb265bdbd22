// Mlp: widen, bend, narrow. The hidden [.., F] is split over tp and never leaves its rank.
#pragma once

#include "nn/linear.h"

namespace trireme::nn {

struct MlpOptions {
  std::int64_t width = 0;   ///< D
  std::int64_t hidden = 0;  ///< F
  Unary activation = Unary::gelu;
  bool bias = true;
  double deviation = 0.02;           ///< initial weights of `up`
  double residual_deviation = 0.02;  ///< initial weights of `down`, which writes into the residual stream
};

class Mlp : public Module {
 public:
  Mlp(const Build& b, const MlpOptions& options);
  Tensor forward(const Tensor& x) override;  // [B, T, D] -> [B, T, D]

 private:
  Unary activation_;
  Linear up_, down_;
};

}  // namespace trireme::nn
