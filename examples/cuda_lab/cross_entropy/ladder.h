// The ladder of the softmax cross-entropy over a large vocabulary: loss and gradient of every row of logits (formulas:
// cuda/kernels/cross_entropy.h; here without label smoothing). The gradient takes the place of the logits. For GPT-2
// 124M, 16,384 rows of 50,304 in bf16, the logits are 1.65 GB, more than everything else that a training step reads.
// Reading and writing them once takes 687 us at 4.8 TB/s; reading them once more, as a vocabulary sharded over ranks
// needs it, 1030 us.
// Read next: examples/cuda_lab/cross_entropy/1_three_passes.cu, then the next levels; docs/ladder.md explains them.
#pragma once

#include "cuda/kernels/cross_entropy.h"
#include "examples/cuda_lab/memory.h"

namespace trireme::cuda::lab::cross_entropy {

struct Problem {
  CrossEntropy<bf16> rows;  ///< first = 0, smoothing = 0; logits are those of `gradients`
  double scale;             ///< of the gradients
  double* losses;           ///< [rows]
  bf16* gradients;          ///< [rows, columns] the logits; receives their gradients
};

/// Turns logits into gradients, after losses, maximum and sum_exp are computed. The first two levels share this kernel.
void gradient_pass(const Problem& p, Stream stream);

/// What a row adds to the loss.
__device__ __forceinline__ double loss_of(const Problem& p, int row, float maximum, float sum_exp) {
  const int target = p.rows.targets[row];
  if (target < 0) return 0;
  const float logit = to_float(p.gradients[std::int64_t{row} * p.rows.columns + target]);
  return log(static_cast<double>(sum_exp)) + static_cast<double>(maximum) - static_cast<double>(logit);
}
__device__ __forceinline__ float gradient_of(const Problem& p, int row, int column, float logit, float maximum,
                                             float sum_exp) {
  const int target = p.rows.targets[row];
  if (target < 0 || column >= p.rows.valid) return 0;
  return static_cast<float>(p.scale) * (expf(logit - maximum) / sum_exp - (column == target ? 1.0F : 0.0F));
}

void three_passes(const Problem& p, Stream stream = nullptr);
void two_passes(const Problem& p, Stream stream = nullptr);
void one_launch(const Problem& p, Stream stream = nullptr);
void shipped(const Problem& p, Stream stream = nullptr);

std::span<const MemoryLevel<Problem>> levels();

}  // namespace trireme::cuda::lab::cross_entropy
