// The ladder of a normalisation's backward pass: the gradient of h for each row, and those of gamma and beta, which are
// sums over all rows of a column (formulas: cuda/kernels/norm.h). The columns are hard, because h and dy are stored row
// by row. h, dy and the residual stream's gradient are read, dx is written: 8 bytes per value in bf16. For a layer of
// GPT-2 124M, 16,384 rows of 768, that is 101 MB: 21 us at 4.8 TB/s.
// Read next: examples/cuda_lab/norm_backward/1_block_per_column.cu, then the next levels; docs/ladder.md explains them.
#pragma once

#include "cuda/kernels/norm.h"
#include "examples/cuda_lab/memory.h"

namespace trireme::cuda::lab::norm_backward {

using Problem = NormBackward<bf16>;  // with dsum; dbeta is null for RMSNorm

/// dx, one block per row: a separate kernel in all levels except the last.
void rows(const Problem& p, Stream stream);

/// A value's terms in the gradients of its column's gamma and beta.
struct Terms {
  float gamma, beta;
};
__device__ __forceinline__ Terms terms_of(const Problem& p, int row, int column) {
  const std::int64_t at = std::int64_t{row} * p.width + column;
  const float mean = p.kind == Norm::layer ? p.mean[row] : 0.0F, dy = to_float(p.dy[at]);
  return {dy * (to_float(p.h[at]) - mean) * p.rstd[row], dy};
}
__device__ __forceinline__ void store(const Problem& p, int column, const Terms& sum) {
  p.dgamma[column] = sum.gamma;
  if (p.dbeta != nullptr) p.dbeta[column] = sum.beta;
}

void block_per_column(const Problem& p, Stream stream = nullptr);
void thread_per_column(const Problem& p, Stream stream = nullptr);
void tiles(const Problem& p, Stream stream = nullptr);
void shipped(const Problem& p, Stream stream = nullptr);

std::span<const MemoryLevel<Problem>> levels();

}  // namespace trireme::cuda::lab::norm_backward
