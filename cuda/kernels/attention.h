// Attention in one pass over the keys: out = softmax(scale q k^T) v, without storing the scores.
// (Dao, Fu, Ermon, Rudra, Ré, FlashAttention, 2022; Milakov and Gimelshein, 2018, for the running softmax.)
// Work per head: 4 Tq Tk D FLOPs, half of it when causal. Bytes: q and out once, Tq D each; k and v once per block of 64
// queries, from L2 after the first.
// Read next: cuda/kernels/attention_sm80.cu.
#pragma once

#include <cstdint>

#include "cuda/device/device.h"

namespace trireme::cuda {

/// T: bf16 or f16. A token's heads lie side by side; a pitch is the number of elements from token to token, so q, k and
/// v may be parts of one packed tensor. head_dim: a multiple of 8 up to 128; pitches multiples of 8, addresses of 16.
template <class T>
struct AttentionForward {
  int batch, heads, kv_heads, head_dim;  ///< kv_heads divides heads
  int queries, keys;                     ///< causal: query i sees keys up to i + keys - queries
  bool causal;
  float scale;
  const T* q;  ///< [batch, queries, heads, head_dim]
  std::int64_t q_pitch;
  const T* k;  ///< [batch, keys, kv_heads, head_dim]
  const T* v;
  std::int64_t kv_pitch;
  T* out;  ///< [batch, queries, heads, head_dim]
  std::int64_t out_pitch;
  float* lse;  ///< [batch, heads, queries] log of the sum of exponentials; -inf where a query sees no key (out: 0)
};

template <class T>
void attention_forward_sm80(const AttentionForward<T>& attention, Stream stream = nullptr);

}  // namespace trireme::cuda
