// Level 3: the kernel in use, copy of cuda/kernels/copy.cu, which takes any strides and dtypes and recognises a
// transpose. Compared with level 2 a row of its tile is one element longer, 66 bytes: down a column, each lane of a
// warp now has its own bank. The extra column is never written. The four waits remain.
// This file also has the cost of each level.
// Read next: docs/ladder.md.
#include <array>
#include <cmath>

#include "cuda/kernels/copy.h"
#include "examples/cuda_lab/transpose/ladder.h"

namespace trireme::cuda::lab::transpose {

void shipped(const Problem& p, Stream stream) {
  const Shape y = {p.columns, p.rows}, x_strides = {1, p.columns}, y_strides = {p.rows, 1};
  copy(p.x, DType::bf16, p.y, DType::bf16, strided<2>(y, {x_strides, y_strides}), stream);
}

namespace {

double values(const Problem& p) { return static_cast<double>(p.rows) * p.columns; }

/// Blocks of 1024 values, in four iterations of 256 threads; wavefronts of an iteration's eight warps.
MemoryCost tiled(const Problem& p, double wavefronts) {
  return cost_of({.blocks = std::ceil(p.rows / 32.0) * std::ceil(p.columns / 32.0),
                  .resident = 8,
                  .bytes = 4 * values(p),
                  .waits = 4,
                  .barriers = 1,
                  .wavefronts = 4 * 8 * wavefronts});
}

constexpr std::array all = {
    // 2 bytes read and a sector written for each value; a store of a warp is 32 lines.
    MemoryLevel<Problem>{"naive", "one element per thread", &naive,
                         [](const Problem& p) {
                           return cost_of({.blocks = std::ceil(values(p) / 256),
                                           .resident = 8,
                                           .bytes = 34 * values(p),
                                           .waits = 1,
                                           .barriers = 0,
                                           .wavefronts = 8 * 33});
                         }},
    // Read and write of memory, write and read of shared memory.
    MemoryLevel<Problem>{"tiles", "through shared memory", &tiles, [](const Problem& p) { return tiled(p, 3 + 16); }},
    MemoryLevel<Problem>{"copy", "rows of the tile end in other banks", &shipped,
                         [](const Problem& p) { return tiled(p, 4); }},
};

}  // namespace

std::span<const MemoryLevel<Problem>> levels() { return all; }

}  // namespace trireme::cuda::lab::transpose
