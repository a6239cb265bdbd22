// The ladder of attention: from three passes with the scores in memory to the kernels in use. Every level computes
// out = softmax(scale q k^T) v for each head, so that levels differ only in speed and memory.
// Read next: examples/cuda_lab/attention/1_materialised.cu, then the next levels; docs/ladder.md explains them.
#pragma once

#include <cstdint>
#include <span>

#include "cuda/device/device.h"

namespace trireme::cuda::lab {

constexpr int kHeadDim = 64;

/// q, k, v, out [heads, tokens, 64], dense; cuda/kernels/attention.h has the general one.
struct Attention {
  int heads, tokens;
  bool causal;
  float scale;
  const bf16* q;
  const bf16* k;
  const bf16* v;
  bf16* out;
  float* scores;  ///< [heads, tokens, tokens], scratch of the first level; the last two leave their log-sum-exp there
};

struct AttentionLevel {
  const char* name;
  const char* idea;
  void (*run)(const Attention&, Stream);
  /// Bytes from and to memory beyond L1 for a head of T tokens, not causal.
  double (*bytes)(double tokens);
};

void materialised(const Attention& p, Stream stream = nullptr);
void one_pass(const Attention& p, Stream stream = nullptr);
void tiled(const Attention& p, Stream stream = nullptr);
void shipped_attention_sm80(const Attention& p, Stream stream = nullptr);
void shipped_attention_sm90(const Attention& p, Stream stream = nullptr);

std::span<const AttentionLevel> attention_levels();

}  // namespace trireme::cuda::lab
