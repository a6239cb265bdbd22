// The ladder of a sum over ranks: y = x[0] + x[1] + ..., added in f32 in the order of the ranks and rounded once, so
// that the bits are those of parallel/comm/rank_order.h on the host, on every run. It follows a gather in an all-reduce
// whose order must not depend on the network. For the output of a layer of GPT-2 124M that four tensor-parallel ranks
// share, 16,384 x 768 in bf16, 101 MB are read and 25 written: 26 us at 4.8 TB/s.
// Read next: examples/cuda_lab/rank_order/1_rank_by_rank.cu, then the next levels; docs/ladder.md explains them.
#pragma once

#include "examples/cuda_lab/memory.h"

namespace trireme::cuda::lab::rank_order {

struct Problem {
  int rows;            ///< ranks, at least one
  std::int64_t count;  ///< values of each
  const bf16* x;       ///< [rows, count]
  bf16* y;             ///< [count]
  float* sums;         ///< [count] scratch of the first level
};

void rank_by_rank(const Problem& p, Stream stream = nullptr);
void one_launch(const Problem& p, Stream stream = nullptr);
void shipped(const Problem& p, Stream stream = nullptr);

std::span<const MemoryLevel<Problem>> levels();

}  // namespace trireme::cuda::lab::rank_order
