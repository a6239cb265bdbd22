// The ladder of gradient descent with momentum, over all tensors of a model (formulas: cuda/kernels/sgd.h). From f32
// gradients, weights and velocities to the same and a bf16 copy of the weights: 22 bytes per element, 2.7 GB for GPT-2
// 124M: 571 us at 4.8 TB/s.
// Read next: examples/cuda_lab/sgd/1_unfused.cu, then the next levels; docs/ladder.md explains them.
#pragma once

#include "cuda/kernels/sgd.h"
#include "examples/cuda_lab/memory.h"

namespace trireme::cuda::lab::sgd {

struct Problem {
  std::span<const SgdTensor<bf16>> tensors;  ///< in host memory; their pointers lead to device memory, none is null
  SgdSettings settings;
};

constexpr int kThreads = 256;

void unfused(const Problem& p, Stream stream = nullptr);
void fused(const Problem& p, Stream stream = nullptr);
void shipped(const Problem& p, Stream stream = nullptr);

std::span<const MemoryLevel<Problem>> levels();

}  // namespace trireme::cuda::lab::sgd
