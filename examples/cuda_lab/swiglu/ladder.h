// The ladder of an elementwise function: SwiGLU, y = silu(gate) up, where a row of x holds gate and then up (formula:
// cuda/kernels/elementwise.h). Both are read and y written: 6 bytes an output in bf16. For an MLP of the size of GPT-2
// 124M, 16,384 rows of 3072, that is 302 MB: 63 us at 4.8 TB/s.
// Read next: examples/cuda_lab/swiglu/1_unfused.cu, then the next levels; docs/ladder.md explains them.
#pragma once

#include "cuda/kernels/elementwise.h"
#include "examples/cuda_lab/memory.h"

namespace trireme::cuda::lab::swiglu {

struct Problem {
  std::int64_t rows, width;
  const bf16* x;  ///< [rows, 2 width]: gate, up
  bf16* y;        ///< [rows, width]
  float* silu;    ///< [rows, width] workspace of the first level
};

constexpr int kThreads = 256;

/// Blocks [columns / kThreads, rows]: no thread has to divide to find its row. At most 65,535 rows.
inline Dim3 grid_of(const Problem& p) {
  return {static_cast<unsigned>((p.width + kThreads - 1) / kThreads), static_cast<unsigned>(p.rows), 1};
}

void unfused(const Problem& p, Stream stream = nullptr);
void fused(const Problem& p, Stream stream = nullptr);
void shipped(const Problem& p, Stream stream = nullptr);

std::span<const MemoryLevel<Problem>> levels();

}  // namespace trireme::cuda::lab::swiglu
