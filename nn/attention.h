// Attention: causal multi-head self-attention. Heads are split over tp: each rank projects, attends and projects back
// its own, and the only communication is that of the two Linear halves around it.
#pragma once

#include "nn/linear.h"

namespace trireme::nn {

struct AttentionOptions {
  std::int64_t width = 0;  ///< D
  std::int64_t heads = 1;  ///< H, a multiple of tp
  bool bias = true;
  double deviation = 0.02;           ///< initial weights of qkv
  double residual_deviation = 0.02;  ///< initial weights of `proj`, which writes into the residual stream
};

class Attention : public Module {
 public:
  Attention(const Build& b, const AttentionOptions& options);
  Tensor forward(const Tensor& x) override;  // [B, T, D] -> [B, T, D]

 private:
  std::int64_t heads_, head_width_;  // on this rank: H/tp; Dh
  Linear qkv_, proj_;
};

}  // namespace trireme::nn
