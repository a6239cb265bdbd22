// Level 4: the kernel in use, cuda/kernels/top_k.cu. Compared with level 3 a row of 64 takes eight lanes, so a warp
// does four rows: a round has three shuffles instead of five, and they serve four rows. A lane has eight values, in two
// loads of 16 bytes. It takes rows of up to 256 in this way, with more lanes, and longer ones as level 2 does; any
// alignment; also bf16 and f16. This file also has the cost of each level.
// Read next: docs/ladder.md.
#include "cuda/kernels/top_k.h"

#include <array>
#include <cmath>

#include "examples/cuda_lab/top_k/ladder.h"

namespace trireme::cuda::lab::top_k {

void shipped(const Problem& p, Stream stream) { ::trireme::cuda::top_k(p.x, p.chosen, p.rows, p.width, p.k, stream); }

namespace {

// Instructions are those of a warp, as in the code for sm_90a, for the two largest of 64.

/// `rows_a_warp`; rounds re-read from L1, which costs neither bytes nor waits for memory.
MemoryCost launch_cost(const Problem& p, double rows_a_warp, double waits, double wavefronts, double instructions) {
  const auto rows = static_cast<double>(p.rows);
  return cost_of(
      {std::ceil(rows / (8 * rows_a_warp)), 8, 4 * rows * (p.width + p.k), waits, 0, 8 * wavefronts, 8 * instructions});
}

constexpr std::array all = {
    // A sector serves eight values.
    MemoryLevel<Problem>{"thread_per_row", "one thread per row, k times", &thread_per_row,
                         [](const Problem& p) {
                           return launch_cost(p, 32, std::ceil(p.width / 8.0), 32.0 * p.k * (p.width + 1), 1999);
                         }},
    MemoryLevel<Problem>{"warp_per_row", "one warp per row, five exchanges per round", &warp_per_row,
                         [](const Problem& p) {
                           const double loads = std::ceil(p.width / 32.0);
                           return launch_cost(p, 1, unrolled(loads), p.k * (loads + 1), 262);
                         }},
    MemoryLevel<Problem>{"in_registers", "read once", &in_registers,
                         [](const Problem& p) { return launch_cost(p, 1, 1, kMostInRegisters / 32.0 + p.k, 171); }},
    // Wavefronts: 1 KB in two loads, and one of each round's stores.
    MemoryLevel<Problem>{"top_k", "four rows per warp, 16 bytes at a time", &shipped,
                         [](const Problem& p) { return launch_cost(p, 4, 1, 8 + p.k, 357); }},
};

}  // namespace

std::span<const MemoryLevel<Problem>> levels() { return all; }

}  // namespace trireme::cuda::lab::top_k
