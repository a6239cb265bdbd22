// The ladder of a transpose: y[c, r] = x[r, c]. There is no arithmetic; only the order of bytes changes. For the
// activations of an MLP of GPT-2 124M, 16,384 x 3072 in bf16, 101 MB are read and as many written: 42 us at 4.8 TB/s.
// Read next: examples/cuda_lab/transpose/1_naive.cu, then the next levels; docs/ladder.md explains them.
#pragma once

#include "examples/cuda_lab/level.h"

namespace trireme::cuda::lab::transpose {

struct Problem {
  int rows, columns;
  const bf16* x;  ///< [rows, columns]
  bf16* y;        ///< [columns, rows]
};

void naive(const Problem& p, Stream stream = nullptr);
void tiles(const Problem& p, Stream stream = nullptr);
void shipped(const Problem& p, Stream stream = nullptr);

std::span<const Level<Problem>> levels();

}  // namespace trireme::cuda::lab::transpose
