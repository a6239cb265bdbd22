// The ladder of joined attention: out and lse over one set of keys, part and part_lse over another, become out and lse
// over both (formulas: cuda/kernels/attention_merge.h). out is read and written, part read: 10 bytes per value. For a
// block of keys that reaches a rank with 16 x 1024 queries of GPT-2 124M's 12 heads of 64, that is 128 MB with the
// log-sum-exps: 27 us at 4.8 TB/s. Levels are slower because each head has only 64 values for its overhead.
// Read next: examples/cuda_lab/attention_merge/1_unfused.cu, then the next levels; docs/ladder.md explains them.
#pragma once

#include <cmath>

#include "cuda/device/device.h"
#include "examples/cuda_lab/memory.h"

namespace trireme::cuda::lab::attention_merge {

struct Problem {
  std::int64_t batch, tokens, heads;
  int width;
  const bf16* part;       ///< [batch, tokens, heads, width]
  const float* part_lse;  ///< [batch, heads, tokens]
  float* out;             ///< like part
  float* lse;             ///< like part_lse
  float *kept, *joined;   ///< [batch, tokens, heads] workspace of the first level

  __host__ __device__ std::int64_t rows() const { return batch * tokens * heads; }
};

constexpr int kThreads = 256;

/// Where lse has row (b, t, h) of out: at (b, h, t).
__device__ __forceinline__ std::int64_t lse_place(const Problem& p, std::int64_t row) {
  const std::int64_t h = row % p.heads, t = row / p.heads % p.tokens, b = row / p.heads / p.tokens;
  return (b * p.heads + h) * p.tokens + t;
}

struct Factors {
  float kept, joined;  ///< of out and of part
  float lse;           ///< over both sets of keys
};
__device__ __forceinline__ Factors factors_of(float lse, float part_lse) {
  const float top = fmaxf(lse, part_lse);
  if (top == -INFINITY) return {1, 0, top};  // neither part saw a key
  const float a = expf(lse - top), b = expf(part_lse - top);
  return {a / (a + b), b / (a + b), top + logf(a + b)};
}

void unfused(const Problem& p, Stream stream = nullptr);
void thread_per_row(const Problem& p, Stream stream = nullptr);
void warp_per_row(const Problem& p, Stream stream = nullptr);
void shipped(const Problem& p, Stream stream = nullptr);

std::span<const MemoryLevel<Problem>> levels();

}  // namespace trireme::cuda::lab::attention_merge
