// The ladder of a gather of rows: y[s] = x[index[s]], zeros where the index is negative. Before the experts of a
// mixture it brings each token to its experts' slots, and after them the answers back to the tokens
// (nn/expert_dispatch.h). An embedding is one, too. No arithmetic; the rows lie anywhere. For 16,384 tokens of GPT-2
// 124M's width, two experts a token, 32,768 rows of 768 in bf16 are read and written: 101 MB, 21 us at 4.8 TB/s.
// Read next: examples/cuda_lab/gather/1_thread_per_row.cu, then the next levels; docs/ladder.md explains them.
#pragma once

#include "examples/cuda_lab/memory.h"

namespace trireme::cuda::lab::gather {

struct Problem {
  const bf16* x;              ///< [rows, width]
  const std::int32_t* index;  ///< [picks], below rows
  int rows, picks, width;
  bf16* y;  ///< [picks, width]
};

void thread_per_row(const Problem& p, Stream stream = nullptr);
void block_per_row(const Problem& p, Stream stream = nullptr);
void shipped(const Problem& p, Stream stream = nullptr);

std::span<const MemoryLevel<Problem>> levels();

}  // namespace trireme::cuda::lab::gather
