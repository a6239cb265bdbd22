// The ladder of a normalisation's forward pass: h = x + residual; y = (h - mean) rstd gamma + beta, or RMSNorm without
// mean and beta (formulas: cuda/kernels/norm.h). x and residual are read, h and y written: 8 bytes per value in bf16.
// For a layer of GPT-2 124M, 16,384 rows of 768, that is 101 MB: 21 us at 4.8 TB/s.
// Read next: examples/cuda_lab/norm_forward/1_thread_per_row.cu, then the next levels; docs/ladder.md explains them.
#pragma once

#include "cuda/kernels/norm.h"
#include "examples/cuda_lab/memory.h"

namespace trireme::cuda::lab::norm_forward {

using Problem = NormForward<bf16>;  // with a residual and a sum; beta is null for RMSNorm

void thread_per_row(const Problem& p, Stream stream = nullptr);
void block_per_row(const Problem& p, Stream stream = nullptr);
void read_once(const Problem& p, Stream stream = nullptr);
void shipped(const Problem& p, Stream stream = nullptr);

std::span<const MemoryLevel<Problem>> levels();

}  // namespace trireme::cuda::lab::norm_forward
