// Attention: self-attention with many heads, causal by default. Heads are split over tp: each rank computes its own
// heads, and only the projections before and after attention communicate. Over cp, where a rank holds a part of the
// sequence, tokens attend to those of other ranks by one of the methods of nn/context_attention.h. With a cache
// (nn/kv_cache.h), tokens come a few at a time and also see the earlier ones.
//
//   multi-head (Vaswani et al. 2017)      as many key-value heads as heads: one packed projection qkv [3, D, D]
//   grouped-query (Ainslie et al. 2023)   H/Hkv neighbouring heads share one: projections q, k and v
//
// With rotary positions the projections are separate too, since q and k are rotated by the position of their token (Su
// et al. 2021). With fewer key-value heads than tp ranks, tp/Hkv neighbouring ranks share one: see
// LinearOptions::parts. A bias of k would add the same number to all scores of a query, which softmax ignores, so a
// separate k has a bias only if it is rotated.
// Read next: nn/attention.cpp, nn/context_attention.h.
#pragma once

#include "nn/linear.h"

namespace trireme::nn {

struct AttentionOptions {
  std::int64_t width = 0;  ///< D
  std::int64_t heads = 1;  ///< H, a multiple of tp
  bool bias = true;
  double init_std = 0.02;           ///< initial weights of qkv
  double residual_init_std = 0.02;  ///< initial weights of `proj`, which writes into the residual stream
  std::int64_t kv_heads = 0;        ///< Hkv, a divisor of H, and a multiple or a divisor of tp; 0: H
  bool rotary = false;              ///< rotary positions; Dh must be even
  bool causal = true;               ///< a token sees those before it; false: all tokens, which needs cp=1

  bool packed() const { return !rotary && key_value_heads() == heads; }
  std::int64_t key_value_heads() const { return kv_heads > 0 ? kv_heads : heads; }
};

class Attention : public Module {
 public:
  Attention(const Build& b, const AttentionOptions& options);
  Tensor forward(const Tensor& x) override { return (*proj_)(mixed(x)); }  // [B, T, D] -> [B, T, D]

 protected:
  Tensor do_forward_add(const Tensor& residual, const Tensor& x) override {
    return proj_->forward_add(residual, mixed(x));
  }

 private:
  Tensor mixed(const Tensor& x);             // [B, T, D] -> [B, T, D/tp]
  Tensor mix_packed(const Tensor& input);    // [B, T, D], R on tp -> [B, T, H/tp, Dh]
  Tensor mix_separate(const Tensor& input);  // the same
  Tensor mix(const Tensor& q, const Tensor& k, const Tensor& v);

  std::int64_t heads_, kv_heads_, head_width_;  // on this rank: H/tp; max(Hkv/tp, 1); Dh
  bool rotary_, causal_;
  std::unique_ptr<Linear> qkv_;        // packed,
  std::unique_ptr<Linear> q_, k_, v_;  // or separate
  std::unique_ptr<Linear> proj_;
};

}  // namespace trireme::nn
