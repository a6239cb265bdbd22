// MultiheadAttention: attention from one tensor to another, with masks, as torch.nn.MultiheadAttention: cross-attention
// of a decoder to an encoder, or self-attention with any mask. Heads are split over tp: each rank computes its own
// heads, and only the projections before and after communicate. nn::Attention (nn/attention.h) is the layer of language
// models: it has rotary positions, caches and context parallelism.
//
//   nn::MultiheadAttention cross(b / "cross", {.width = 64, .heads = 4, .key_width = 48, .value_width = 48});
//   const Tensor y = cross(x, memory);                                       // [B, Tq, 64], [B, Tk, 48] -> [B, Tq, 64]
//   cross(x, memory, {.mask = nn::length_mask(lengths, memory.size(1))});    // each row's first lengths[b] keys count
//   self(x, x, {.causal = true});
//
// PyTorch's masks are True for a key that is left out; here 1 is a key that counts (autograd/masked_attention.h).
// Weights q, k and v are its in_proj_weight in three; `out` is its out_proj. It has no dropout of attention weights.
// Read next: autograd/masked_attention.h, nn/linear.h.
#pragma once

#include "autograd/masked_attention.h"
#include "nn/linear.h"

namespace trireme::nn {

/// Sizes of a MultiheadAttention.
struct MultiheadAttentionOptions {
  std::int64_t width = 0;        ///< D, of queries and results
  std::int64_t heads = 1;        ///< H, a divisor of D, and a multiple of tp
  std::int64_t key_width = 0;    ///< features of the keys' input; 0: D. PyTorch's kdim
  std::int64_t value_width = 0;  ///< features of the values' input; 0: D. PyTorch's vdim
  bool bias = true;              ///< of all four projections; they begin at 0
};

/// u8 [B, 1, 1, keys] for AttentionMask::mask: 1 for the first lengths[b] keys of sequence b. lengths: i32 [B]. Throws
/// ExitCode::data for a length below 0 or above `keys`.
Tensor length_mask(const Tensor& lengths, std::int64_t keys);

/// Attention with its projections: see the top of this file.
/// @snippet modules_test.cpp multihead_attention
class MultiheadAttention : public ModuleBase {
 public:
  /// The initial weights are PyTorch's: Xavier's for q, k and v. Refuses cp.
  MultiheadAttention(const Build& b, const MultiheadAttentionOptions& options);
  /// query [B, Tq, D], key [B, Tk, key_width], value [B, Tk, value_width] -> [B, Tq, D]. All are placed as the residual
  /// stream. The mask is for whole sequences and, if its heads differ, for all H heads.
  Tensor operator()(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionMask& mask = {});
  /// The same with keys and values of one tensor.
  Tensor operator()(const Tensor& x, const Tensor& memory, const AttentionMask& mask = {});

 private:
  Tensor whole(const Tensor& x) const;  // residual [B, T, ..] -> all positions, R on tp
  Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask);  // of these
  Tensor heads_of(Linear& projection, const Tensor& x) const;  // [B, T, ..], R on tp -> [B, T, H/tp, Dh]
  AttentionMask own_part(AttentionMask mask) const;            // of this rank's heads

  std::int64_t all_heads_, heads_, head_width_;  // H; on this rank: H/tp; Dh
  Linear q_, k_, v_, out_;
};

}  // namespace trireme::nn
