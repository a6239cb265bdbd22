// Attention in one pass over the keys: out = softmax(scale q k^T) v, without storing the scores. (Dao, Fu, Ermon,
// Rudra, Ré, FlashAttention, 2022; Milakov and Gimelshein, 2018, for the running softmax.) Work per head: 4 Tq Tk D
// FLOPs, half of it when causal. Bytes: q and out once, Tq D each; k and v once per block of 64 queries, from L2 after
// the first.
//
// And its backward (Dao, FlashAttention-2, 2023, section 3.1.2). With s = scale q k^T, p = exp(s - lse), and dp = dout
// v^T:
//   delta = rowsum(dout out) - dlse     ds = p (dp - delta)
//   dv = p^T dout     dk = scale ds^T q     dq = scale ds k
// dk and dv are summed over queries, dq over keys. One kernel for all three would need atomics, whose order varies, or
// blocks that wait for each other (docs/cuda.md, "Attention on Hopper", compares them). Here one kernel makes dk and dv
// and another dq, and each computes s and dp: 14 Tq Tk D FLOPs per head instead of 10 (half when causal), but the same
// bits on every run. Bytes per head: q, dout once per block of 64 keys; k, v once per block of 64 queries, from L2
// after the first; out once; dq, dk, dv once.
// Read next: cuda/kernels/attention_tiles.h.
#pragma once

#include <cstdint>

#include "cuda/device/device.h"

namespace trireme::cuda {

/// T: bf16, f16 or float. A token's heads lie side by side; a pitch is the number of elements from token to token, so
/// q, k and v may be parts of one packed tensor. head_dim: a multiple of 8 up to 128; pitches multiples of 8, addresses
/// of 16. In f32: any head_dim up to 128, any pitches and addresses.
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
  /// [batch, queries], or null: query i sees keys from first_key[i] on (any number, also below 0 or beyond keys). This
  /// separates documents in one sequence. Tiles of 64 keys that none of 64 queries sees are skipped.
  const std::int32_t* first_key = nullptr;
};

template <class T>
void attention_forward_sm80(const AttentionForward<T>& attention, Stream stream = nullptr);

/// With TMA and wgmma; only on compute capability 9.0. Needs a scale above 0, and pitches that hold all heads. It skips
/// tiles of 128 keys, for tiles of 128 queries (head_dim above 64) or 192.
template <class T>
void attention_forward_sm90(const AttentionForward<T>& attention, Stream stream = nullptr);

/// The same with tiles of 128 queries or, for a head_dim up to 64, of 192; others are refused. attention_forward_sm90
/// takes what costs less for these lengths.
template <class T>
void attention_forward_sm90_by(int tile_queries, const AttentionForward<T>& attention, Stream stream = nullptr);

/// dq, dk and dv are overwritten; pitches and addresses as above. k and v may be only part of the keys that out and lse
/// cover: the result is then that part's contribution, because ds needs no other keys.
template <class T>
struct AttentionBackward {
  AttentionForward<T> forward;  ///< the forward's inputs and outputs
  const T* dout;                ///< [batch, queries, heads, head_dim]
  std::int64_t dout_pitch;
  const float* dlse;  ///< [batch, heads, queries] gradient of lse, or null: zero
  T* dq;              ///< [batch, queries, heads, head_dim]
  std::int64_t dq_pitch;
  T* dk;  ///< [batch, keys, kv_heads, head_dim], summed over the heads of a group in order
  T* dv;
  std::int64_t dkv_pitch;
  float* delta;              ///< scratch [batch, heads, queries]
  std::int32_t* first_tile;  ///< scratch [batch, (queries + 63) / 64]; needed if forward.first_key is given
};

/// Starts a kernel for delta, one for dk and dv, and one for dq; with first_key also one for first_tile.
template <class T>
void attention_backward_sm80(const AttentionBackward<T>& attention, Stream stream = nullptr);

/// The same computation, by kernels for compute capability 9.0; pitches must hold all heads. Tiles of 64 queries by 128
/// keys, and of 128 queries (head_dim above 64) or 192 by 64 keys.
template <class T>
void attention_backward_sm90(const AttentionBackward<T>& attention, Stream stream = nullptr);

/// The same in f32, with products and sums in f32 on the ordinary arithmetic units: used by f32 runs, to be comparable
/// with the CPU. Blocks own 64 queries (backward: 32 queries, or 32 keys) and stream tiles of 32. first_tile is not
/// used.
void attention_forward_f32(const AttentionForward<float>& attention, Stream stream = nullptr);
void attention_backward_f32(const AttentionBackward<float>& attention, Stream stream = nullptr);

}  // namespace trireme::cuda
