// The ladder of matrix products: from one thread per element to the kernels in use, one idea a level. Every level
// computes c = a b from bf16, in f32, so that levels differ only in speed.
// Read next: examples/cuda_lab/gemm/1_naive.cu, then the next levels; docs/ladder.md explains them, and counts what
// limits each.
#pragma once

#include "examples/cuda_lab/level.h"

namespace trireme::cuda::lab::gemm {

/// c [M, N] = a [M, K] b [K, N], all dense and row-major. M, N and K are multiples of 8, and addresses of 16 bytes, so
/// that rows can be copied in pieces of 16 bytes; cuda/kernels/gemm.h has the general product.
struct Problem {
  int m, n, k;
  const bf16* a;
  const bf16* b;
  float* c;
};

void naive(const Problem& p, Stream stream = nullptr);
void coalesced(const Problem& p, Stream stream = nullptr);
void shared_tiles(const Problem& p, Stream stream = nullptr);
void register_tiles(const Problem& p, Stream stream = nullptr);
void pipelined(const Problem& p, Stream stream = nullptr);
void tensor_cores(const Problem& p, Stream stream = nullptr);
void shipped_sm80(const Problem& p, Stream stream = nullptr);
void shipped_sm90(const Problem& p, Stream stream = nullptr);

std::span<const Level<Problem>> levels();

}  // namespace trireme::cuda::lab::gemm
