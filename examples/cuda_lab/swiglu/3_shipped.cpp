// Level 3: the kernel in use, swiglu of cuda/kernels/elementwise.cu. Compared with level 2 a thread takes 16 bytes of
// the gate and as many of up. It takes any alignment, f32 and f16, and any number of rows: beyond 2048, blocks loop
// over rows. A block's threads lie along a row. A row of 3072 has 384 pieces, so its second block is half full: a
// quarter of all threads are idle, and three quarters still have 48 KB under way. This file also has the cost of each
// level.
// Read next: docs/ladder.md.
#include <algorithm>
#include <array>
#include <cmath>

#include "examples/cuda_lab/swiglu/ladder.h"

namespace trireme::cuda::lab::swiglu {

void shipped(const Problem& p, Stream stream) { ::trireme::cuda::swiglu(p.x, p.y, p.rows, p.width, stream); }

namespace {

/// One output per thread; `instructions` of a warp, as in the code for sm_90a.
MemoryCost launch_cost(const Problem& p, double bytes, double wavefronts, double instructions) {
  const auto rows = static_cast<double>(p.rows), width = static_cast<double>(p.width);
  return cost_of({.blocks = rows * std::ceil(width / kThreads),
                  .resident = 8,
                  .bytes = bytes * rows * width,
                  .waits = 1,
                  .barriers = 0,
                  .wavefronts = 8 * wavefronts,
                  .instructions = 8 * instructions});
}

constexpr std::array all = {
    MemoryLevel<Problem>{"unfused", "silu, product; an output a thread", &unfused,
                         [](const Problem& p) { return launch_cost(p, 6, 2, 48) + launch_cost(p, 8, 3, 35); }},
    MemoryLevel<Problem>{"fused", "one kernel", &fused, [](const Problem& p) { return launch_cost(p, 6, 3, 55); }},
    // Blocks loop over several rows, with one wait each. Eight outputs per thread.
    MemoryLevel<Problem>{"swiglu", "16 bytes at a time", &shipped,
                         [](const Problem& p) {
                           const auto rows = static_cast<double>(p.rows), width = static_cast<double>(p.width);
                           const double blocks_y = std::min(rows, 2048.0), turns = std::ceil(rows / blocks_y);
                           const double blocks = std::ceil(width / (8 * kThreads)) * blocks_y;
                           const double warps = rows * std::ceil(width / (8 * 32)) / blocks;
                           return cost_of({.blocks = blocks,
                                           .resident = 8,
                                           .bytes = 6 * rows * width,
                                           .waits = turns,
                                           .barriers = 0,
                                           .wavefronts = 12 * warps,
                                           .instructions = 264 * warps});
                         }},
};

}  // namespace

std::span<const MemoryLevel<Problem>> levels() { return all; }

}  // namespace trireme::cuda::lab::swiglu
