// The ladder of grouped products: y = x w[g]^T, where rows of x are sorted by the expert g that a router gave them to.
// The number of rows of each is known only on the device, after the router has run. In every level a tile's product is
// that of examples/cuda_lab/gemm. Levels differ in how they make tiles: how many launches, how much padding, how many
// multiprocessors get one. For 16,384 tokens with two of 64 experts each, 512 hidden units an expert, at the width of
// GPT-2 124M: 26 GFLOP, and 134 MB of x, w and y, 28 us at 4.8 TB/s.
// Read next: examples/cuda_lab/grouped/1_launch_an_expert.cpp, then the next levels; docs/ladder.md explains them.
#pragma once

#include "examples/cuda_lab/memory.h"

namespace trireme::cuda::lab::grouped {

/// n and k are multiples of 8, addresses of 16 bytes; cuda/kernels/gemm.h has the general one, GroupedGemm.
struct Problem {
  int groups, rows, n, k;
  const bf16* x;                ///< [rows, k]
  const bf16* w;                ///< [groups, n, k]
  bf16* y;                      ///< [rows, n]
  const int* offsets;           ///< [groups + 1] in device memory: group g begins at row offsets[g]
  std::span<const int> starts;  ///< the same on the host, for levels that must know
  bf16* padded_x;               ///< [groups, rows of the largest, k] scratch of `padded`
  bf16* padded_y;               ///< [groups, rows of the largest, n] likewise
  int rows_of(int group) const {
    return starts[static_cast<std::size_t>(group) + 1] - starts[static_cast<std::size_t>(group)];
  }
  int largest() const {
    int most = 0;
    for (int g = 0; g < groups; ++g) most = rows_of(g) > most ? rows_of(g) : most;
    return most;
  }
};

void launch_an_expert(const Problem& p, Stream stream = nullptr);
void padded(const Problem& p, Stream stream = nullptr);
void shipped_sm80(const Problem& p, Stream stream = nullptr);
void shipped_sm90(const Problem& p, Stream stream = nullptr);

std::span<const MemoryLevel<Problem>> levels();

}  // namespace trireme::cuda::lab::grouped
