// Attention: self-attention with many heads, causal by default. Heads are split over tp: each rank computes its own
// heads, and only the projections before and after attention communicate. Over cp, where a rank holds a part of the
// sequence, tokens attend to those of other ranks by one of the methods of nn/context_attention.h. With a cache
// (nn/kv_cache.h), tokens come a few at a time and also see the earlier ones.
//
//   multi-head (Vaswani et al. 2017)      as many key-value heads as heads: one packed projection qkv [3, H Dh, D]
//   grouped-query (Ainslie et al. 2023)   H/Hkv neighbouring heads share one: projections q, k and v
//
// A head has D / H features, or head_width of them (Gemma, Mistral Nemo, Qwen3); the projection after attention is
// [D, H Dh].
//
// With rotary positions the projections are separate too, since q and k are rotated by the position of their token (Su
// et al. 2021). With fewer key-value heads than tp ranks, tp/Hkv neighbouring ranks share one: see
// LinearOptions::parts. A bias of k would add the same number to all scores of a query, which softmax ignores, so a
// separate k has a bias only if it is rotated, normalised, or scores are capped.
//
//   scale     scores are multiplied by it, in the place of 1 / sqrt(Dh) (Gemma 2: query_pre_attn_scalar)
//   qkv_bias  q, k and v have biases also where other layers have none (Qwen2, Yang et al. 2024, section 2.2.1)
//   qk_norm   RMS norms of q and k over the features of a head, before they are rotated (Henry et al. 2020; as in
//             Qwen3). All heads share the two gains [Dh]. A tp rank sees its own heads, so the gains are R: their
//             gradients are summed over tp.
//   window    a token sees the last `window` tokens only, itself among them (Beltagy et al. 2020; Mistral). Blocks of
//             keys before the window are not computed.
//   softcap   scores are kept within -c and c: c tanh(s / c) (Gemma 2 report, section 2). Not on a GPU.
//
//   nn::Attention attn(b / "attn", {.width = 512, .heads = 8, .kv_heads = 2, .rope = nn::Rotary{}, .qk_norm = true,
//                                   .window = 128});
// Read next: nn/attention.cpp, nn/context_attention.h, nn/rotary.h.
#pragma once

#include "nn/linear.h"
#include "nn/rotary.h"

namespace trireme::nn {

/// Sizes and choices of an Attention.
struct AttentionOptions {
  std::int64_t width = 0;                     ///< D
  std::int64_t heads = 1;                     ///< H, a multiple of tp
  bool bias = true;                           ///< of all projections
  double init_std = 0.02;                     ///< initial weights of qkv
  double residual_init_std = 0.02;            ///< initial weights of `proj`, which writes into the residual stream
  std::int64_t head_width = 0;                ///< Dh; 0: D / H, and H must divide D
  std::int64_t kv_heads = 0;                  ///< Hkv, a divisor of H, and a multiple or a divisor of tp; 0: H
  std::optional<Rotary> rope = std::nullopt;  ///< rotary positions, Rotary{} for the usual; Dh must be even
  bool causal = true;                         ///< a token sees those before it; false: all tokens, which needs cp=1

  double scale = 0;       ///< of scores; 0: 1 / sqrt(Dh)
  bool qkv_bias = false;  ///< biases of q, k and v also without `bias`
  bool qk_norm = false;
  double norm_eps = 1e-5;          ///< of qk_norm
  bool zero_centred_norm = false;  ///< the gains of qk_norm are 1 + weight, as in nn::RmsNorm
  std::int64_t window = 0;         ///< tokens that a token sees; needs `causal`; 0: all
  double softcap = 0;              ///< 0: none

  bool packed() const { return !rope && !qk_norm && key_value_heads() == heads; }
  bool query_bias() const { return bias || qkv_bias; }  ///< of q and v
  bool key_bias() const { return query_bias() && (packed() || rope || qk_norm || softcap > 0); }
  std::int64_t key_value_heads() const { return kv_heads > 0 ? kv_heads : heads; }
  std::int64_t head_features() const { return head_width > 0 ? head_width : width / heads; }
};

/// RMS norm over the features of each head, [.., Dh]; all heads of all tp ranks share the gain.
class HeadNorm : public Module {
 public:
  HeadNorm(const Build& b, std::int64_t width, double eps, bool zero_centred)
      : Module(b),
        eps_(eps),
        zero_centred_(zero_centred),
        weight_(b.parameter("weight", {width}, {.tp = placement::R}, Init::constant(zero_centred ? 0 : 1))) {}
  Tensor forward(const Tensor& x) override {
    return rms_norm(x, zero_centred_ ? weight_->value() + 1.0 : weight_->value(), eps_);
  }

 private:
  double eps_;
  bool zero_centred_;
  ParameterPtr weight_;  // [Dh]
};

/// Self-attention with its projections; heads are split over tp.
/// @snippet modules_test.cpp attention_layer
class Attention : public Module {
 public:
  Attention(const Build& b, const AttentionOptions& options);
  Tensor forward(const Tensor& x) override { return (*proj_)(mixed(x)); }  // [B, T, D] -> [B, T, D]

 protected:
  Tensor do_forward_add(const Tensor& residual, const Tensor& x) override {
    return proj_->forward_add(residual, mixed(x));
  }

 private:
  Tensor mixed(const Tensor& x);             // [B, T, D] -> [B, T, H Dh/tp]
  Tensor mix_packed(const Tensor& input);    // [B, T, D], R on tp -> [B, T, H/tp, Dh]
  Tensor mix_separate(const Tensor& input);  // the same
  Tensor mix(const Tensor& q, const Tensor& k, const Tensor& v);
  Tensor rotated(const Tensor& x, const Tensor& positions) const;
  Tensor positions_of(std::int64_t tokens) const;                    // [T] or [B, T] i32
  Tensor first_seen(std::int64_t batch, std::int64_t tokens) const;  // [B, T] i32, or undefined

  std::int64_t heads_, kv_heads_, head_width_;  // on this rank: H/tp; max(Hkv/tp, 1); Dh
  bool causal_;
  std::optional<Rotary> rope_;
  Tensor frequencies_;  // rope_frequencies()
  std::int64_t window_;
  double scale_, softcap_;                     // of scores
  std::unique_ptr<HeadNorm> q_norm_, k_norm_;  // if asked for
  std::unique_ptr<Linear> qkv_;                // packed,
  std::unique_ptr<Linear> q_, k_, v_;          // or separate
  std::unique_ptr<Linear> proj_;
};

}  // namespace trireme::nn
