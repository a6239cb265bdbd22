// The ladder of attention's backward pass: dq, dk and dv of out = softmax(scale q k^T) v from dout. It has five
// products of T x T x 64 per head where the forward pass has two, and four of them need p = softmax(scale q k^T). The
// levels differ in the cost of storing or recomputing p. (Formulas: cuda/kernels/attention.h.)
// For a layer of GPT-2 124M, 192 heads of 1024 tokens under the causal mask, dq, dk and dv take 65 GFLOP.
// Read next: examples/cuda_lab/attention_backward/1_materialised.cu, then the next levels; docs/ladder.md explains all.
#pragma once

#include "examples/cuda_lab/attention/ladder.h"
#include "examples/cuda_lab/memory.h"

namespace trireme::cuda::lab::attention_backward {

/// q, k, v, out, dout, dq, dk, dv [heads, tokens, 64], dense; cuda/kernels/attention.h has the general one.
struct Problem {
  int heads, tokens;
  bool causal;
  float scale;
  const bf16* q;
  const bf16* k;
  const bf16* v;
  bf16* out;   ///< of the forward pass; only read
  float* lse;  ///< [heads, tokens] of the forward pass: log of each query's sum of exponentials; only read
  const bf16* dout;
  bf16* dq;
  bf16* dk;
  bf16* dv;
  float* delta;          ///< [heads, tokens] scratch: rowsum(dout out)
  float* probabilities;  ///< [heads, tokens, tokens] scratch of the first level, and the next:
  float* ds;
};

void materialised(const Problem& p, Stream stream = nullptr);
void recomputed(const Problem& p, Stream stream = nullptr);
void tiled(const Problem& p, Stream stream = nullptr);
void shipped_sm80(const Problem& p, Stream stream = nullptr);
void shipped_sm90(const Problem& p, Stream stream = nullptr);

std::span<const MemoryLevel<Problem>> levels();

}  // namespace trireme::cuda::lab::attention_backward
