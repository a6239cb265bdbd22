// The ladder of rotary positions: of a head of Dh values, x[i] and x[i + Dh/2] are turned by position * base^(-2 i /
// Dh) (formulas: cuda/kernels/rope.h). x is read and y written: 4 bytes a value in bf16. For the queries of a layer of
// the size of GPT-2 124M, 16,384 tokens with 12 heads of 64, that is 50 MB: 10 us at 4.8 TB/s. The limit of the levels
// is not memory but the work to find the angle of each value.
// Read next: examples/cuda_lab/rope/1_angles.cu, then the next levels; docs/ladder.md explains them.
#pragma once

#include "cuda/kernels/rope.h"
#include "examples/cuda_lab/memory.h"

namespace trireme::cuda::lab::rope {

using Problem = Rope<bf16>;  // turns forward; `table` is workspace of all levels but the first

constexpr int kThreads = 256;

void angles(const Problem& p, Stream stream = nullptr);
void table(const Problem& p, Stream stream = nullptr);
void pairs(const Problem& p, Stream stream = nullptr);
void shipped(const Problem& p, Stream stream = nullptr);

/// Fills p.table [2, tokens, head_dim / 2], cosines and then sines, in a separate launch.
void make_table(const Problem& p, Stream stream);

std::span<const MemoryLevel<Problem>> levels();

}  // namespace trireme::cuda::lab::rope
