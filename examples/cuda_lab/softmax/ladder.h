// The ladder of a softmax over rows: y = exp(x - max) / sum (cuda/kernels/softmax.h). x is read and y written: 4 bytes
// a value in bf16. For the scores of a layer of GPT-2 124M as a matrix, 16 x 12 x 1024 rows of 1024, that is 805 MB:
// 168 us at 4.8 TB/s. Attention never makes that matrix (examples/cuda_lab/attention); the router of a mixture of
// experts has rows of this kind that are much shorter.
// Read next: examples/cuda_lab/softmax/1_three_passes.cu, then the next levels; docs/ladder.md explains them.
#pragma once

#include "cuda/kernels/softmax.h"
#include "examples/cuda_lab/level.h"

namespace trireme::cuda::lab::softmax {

struct Problem {
  std::int64_t rows;
  int width;
  const bf16* x;     ///< [rows, width]
  bf16* y;           ///< [rows, width]
  float *top, *sum;  ///< [rows] workspace of the first level
};

constexpr int kThreads = 256;
constexpr int kMostInRegisters = 1024;  ///< columns, for level 3

void three_passes(const Problem& p, Stream stream = nullptr);
void read_once(const Problem& p, Stream stream = nullptr);
void warp_per_row(const Problem& p, Stream stream = nullptr);
void shipped(const Problem& p, Stream stream = nullptr);

std::span<const Level<Problem>> levels();

}  // namespace trireme::cuda::lab::softmax
