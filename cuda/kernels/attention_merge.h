// Joins attention over two disjoint sets of keys. Ring attention does this with every block of keys that arrives: with
// a = lse and b = part_lse,  lse = log(e^a + e^b),  out = out e^(a - lse) + part e^(b - lse)
// (Milakov and Gimelshein, Online normalizer calculation for softmax, 2018).
// Contract: attention_merge of core/kernels.h, for a part in float, bf16 or f16.
// Bytes per value: out is read and written (8), part of b bytes is read: 8 + b. 3 FLOPs.
#pragma once

#include <cstdint>

#include "cuda/device/device.h"

namespace trireme::cuda {

template <class T>
struct AttentionMerge {
  std::int64_t batch, tokens, heads, width;
  const T* part;                    ///< [batch, tokens, heads, width], last stride 1
  std::int64_t part_stride[3];      ///< of batch, token, head
  const float* part_lse;            ///< [batch, heads, tokens]
  std::int64_t part_lse_stride[3];  ///< of batch, head, token
  float* out;                       ///< like part
  std::int64_t out_stride[3];
  float* lse;  ///< like part_lse
  std::int64_t lse_stride[3];
};

/// Turns out and lse over one set of keys into those over both sets.
template <class T>
void attention_merge(const AttentionMerge<T>& problem, Stream stream = nullptr);

}  // namespace trireme::cuda
