// The ladder of the k largest of a row: their columns, the largest first, and of equals the lower column first
// (contract: cuda/kernels/top_k.h). A router of a mixture of experts uses it. Each value is read once: for 16,384
// tokens and 64 experts, in f32, that is 4 MB, less than a microsecond at 4.8 TB/s. So the time goes to the
// computation, in which the levels differ, and to the launch, which they have in common.
// Read next: examples/cuda_lab/top_k/1_thread_per_row.cu, then the next levels; docs/ladder.md explains them.
#pragma once

#include "examples/cuda_lab/memory.h"

namespace trireme::cuda::lab::top_k {

struct Problem {
  std::int64_t rows;
  int width, k;          ///< 1 <= k <= width
  const float* x;        ///< [rows, width]
  std::int32_t* chosen;  ///< [rows, k]
};

constexpr int kThreads = 256;
constexpr int kMostInRegisters = 64;  ///< columns, for level 3

void thread_per_row(const Problem& p, Stream stream = nullptr);
void warp_per_row(const Problem& p, Stream stream = nullptr);
void in_registers(const Problem& p, Stream stream = nullptr);
void shipped(const Problem& p, Stream stream = nullptr);

std::span<const MemoryLevel<Problem>> levels();

}  // namespace trireme::cuda::lab::top_k
