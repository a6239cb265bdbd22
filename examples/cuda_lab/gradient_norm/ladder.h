// The ladder of a reduction: the sum of squares of all gradients, which clipping needs. Every level adds tiles of 4096
// values into one partial sum each, and then the partial sums: two passes, so that no atomics are needed and the bits
// are the same on every run. For GPT-2 124M in bf16, 249 MB are read: 52 us at 4.8 TB/s.
// Read next: examples/cuda_lab/gradient_norm/1_one_thread.cu, then the next levels; docs/ladder.md explains them.
#pragma once

#include "cuda/kernels/optimizer.h"
#include "examples/cuda_lab/level.h"

namespace trireme::cuda::lab::gradient_norm {

constexpr int kTile = 4096;  ///< values that a block adds
inline int tiles_of(std::int64_t count) { return static_cast<int>((count + kTile - 1) / kTile); }

struct Problem {
  std::span<const AdamWTensor<bf16>> tensors;  ///< in host memory; their gradients are in device memory
  float* partials;                             ///< [tiles of all tensors] workspace
  double* shipped_partials;                    ///< [tiles of all tensors] workspace of the last level
  double* result;                              ///< [1]
};

/// The second pass: one block adds the partial sums. The same for all levels but the last.
void add_partials(const Problem& p, Stream stream);

/// The first pass of most levels: a launch per tensor, a block per tile.
template <class Kernel>
void each_tensor(const char* name, const Problem& p, unsigned threads, Kernel* kernel, Stream stream) {
  float* partials = p.partials;
  for (const auto& tensor : p.tensors) {
    const int tiles = tiles_of(tensor.count);
    if (tiles > 0)
      launch({name, {static_cast<unsigned>(tiles), 1, 1}, {threads, 1, 1}, 0, stream}, kernel, tensor.gradient,
             tensor.count, partials);
    partials += tiles;
  }
  add_partials(p, stream);
}

/// A block's tile.
struct Range {
  std::int64_t begin, end;
};
__device__ __forceinline__ Range my_tile(std::int64_t count) {
  const std::int64_t begin = std::int64_t{blockIdx.x} * kTile, end = begin + kTile;
  return {begin, end < count ? end : count};
}

void one_thread(const Problem& p, Stream stream = nullptr);
void interleaved(const Problem& p, Stream stream = nullptr);
void sequential(const Problem& p, Stream stream = nullptr);
void shuffles(const Problem& p, Stream stream = nullptr);
void vectors(const Problem& p, Stream stream = nullptr);
void shipped(const Problem& p, Stream stream = nullptr);

std::span<const Level<Problem>> levels();

}  // namespace trireme::cuda::lab::gradient_norm
