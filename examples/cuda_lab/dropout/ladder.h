// The ladder of dropout: y = x / (1 - p) where kept, else 0 (formula and mask: cuda/kernels/dropout.h). x is read and y
// written: 4 bytes a value in bf16. For the output of an MLP of GPT-2 124M, 16,384 x 768, that is 50 MB: 10 us at 4.8
// TB/s. The arithmetic is ten rounds of Philox for every four values, and here it does matter.
// Read next: examples/cuda_lab/dropout/1_stored_mask.cu, then the next levels; docs/ladder.md explains them.
#pragma once

#include "core/random.h"
#include "examples/cuda_lab/memory.h"

namespace trireme::cuda::lab::dropout {

struct Problem {
  std::int64_t count;
  const bf16* x;  ///< [count]
  bf16* y;        ///< [count]
  double p;       ///< of being dropped, below 1
  std::uint64_t seed, stream;
  float* numbers;      ///< [count] workspace of the first level
  std::uint8_t* mask;  ///< [count] what the first level keeps for the backward pass
};

constexpr int kThreads = 256;

/// 1 / (1 - p), by the host.
inline float scale_of(const Problem& p) { return static_cast<float>(1 / (1 - p.p)); }
/// The upper 24 bits of a random word keep a value when they are at least this, by the host.
inline std::uint32_t threshold_of(const Problem& p) { return static_cast<std::uint32_t>(std::ceil(p.p * 0x1p24)); }

void stored_mask(const Problem& p, Stream stream = nullptr);
void recomputed(const Problem& p, Stream stream = nullptr);
void four_per_block(const Problem& p, Stream stream = nullptr);
void shipped(const Problem& p, Stream stream = nullptr);

std::span<const MemoryLevel<Problem>> levels();

}  // namespace trireme::cuda::lab::dropout
