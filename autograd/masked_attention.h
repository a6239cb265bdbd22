// Attention with a mask, a window or capped scores. What the kernel of attention() can compute, it computes, without a
// tensor of all scores: causal attention, documents, the window, and on the CPU a cap. A mask tensor, or on a GPU a
// cap, needs the scores [B, H, Tq, Tk], in f32 (f64 for f64).
//
//   masked_attention(q, k, v, {.causal = true, .window = 128});        // sliding window: no tensor of scores
//   masked_attention(q, k, v, {.mask = padding});                      // u8 [B, 1, 1, Tk]: 1 for a key that counts
//   masked_attention(q, k, v, {.mask = bias});                         // floating [1, H, Tq, Tk], added to the scores
//
// Read next: autograd/ops.h, attention().
#pragma once

#include "core/tensor.h"

namespace trireme {

/// Which keys a query sees, besides causality, and how scores change before the softmax.
/// @snippet tensor_test.cpp attention
struct AttentionMask {
  /// [B or 1, H or 1, Tq or 1, Tk]. u8 on the host: 1 where the query sees the key, else 0, like PyTorch's boolean
  /// mask. Floating, of the dtype of q: is added to the scaled scores, and may need a gradient; a query whose sums are
  /// all -infinity gives NaN. H: the heads of q on this rank. Undefined: every query sees every key.
  Tensor mask{};
  bool causal = false;  ///< query i sees keys up to i + Tk - Tq
  std::int64_t window =
      0;               ///< of these only the last `window`; needs causal; 0: all (Beltagy et al. 2020, section 3.1)
  Tensor first_key{};  ///< [B, Tq] i32, on the host: the first key that a query sees, as in attention()
  /// Scores s become softcap tanh(s / softcap), after scale and before the mask (Gemma 2 report, section 2); 0: none.
  double softcap = 0;
  double scale = 0;  ///< of the scores; 0: 1 / sqrt(Dh)
};

/// q [B, Tq, H, Dh], k and v [B, Tk, Hkv, Dh], H a multiple of Hkv -> [B, Tq, H, Dh]; Tq and Tk may differ. A query
/// that sees no key gets zeros, and gives no gradient.
Tensor masked_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& options);

}  // namespace trireme
