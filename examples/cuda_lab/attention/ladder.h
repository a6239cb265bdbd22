// The ladder of attention: from three passes with the scores in memory to the kernels in use. Every level computes
// out = softmax(scale q k^T) v for each head, so that levels differ only in speed and memory.
// Read next: examples/cuda_lab/attention/1_materialised.cu, then the next levels; docs/ladder.md explains them.
#pragma once

#include "examples/cuda_lab/level.h"

namespace trireme::cuda::lab::attention {

constexpr int kHeadDim = 64;

/// q, k, v, out [heads, tokens, 64], dense; cuda/kernels/attention.h has the general one.
struct Problem {
  int heads, tokens;
  bool causal;
  float scale;
  const bf16* q;
  const bf16* k;
  const bf16* v;
  bf16* out;
  float* scores;  ///< [heads, tokens, tokens], scratch of the first level; the last two leave their log-sum-exp there
};

void materialised(const Problem& p, Stream stream = nullptr);
void one_pass(const Problem& p, Stream stream = nullptr);
void tiled(const Problem& p, Stream stream = nullptr);
void shipped_sm80(const Problem& p, Stream stream = nullptr);
void shipped_sm90(const Problem& p, Stream stream = nullptr);

std::span<const Level<Problem>> levels();

}  // namespace trireme::cuda::lab::attention
