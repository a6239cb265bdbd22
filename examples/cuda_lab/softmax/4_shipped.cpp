// Level 4: the kernel in use, cuda/kernels/softmax.cu. Compared with level 3 a lane moves pieces of 16 bytes: four for
// a row of 1024, and one for rows of up to 256, as in a router, with an eighth of the registers. It takes any
// alignment, f32 and f16. A block takes rows beyond 1024 and reads them twice. The costs of all levels are here.
// Read next: docs/ladder.md.
#include <array>
#include <cmath>

#include "examples/cuda_lab/softmax/ladder.h"

namespace trireme::cuda::lab::softmax {

void shipped(const Problem& p, Stream stream) { ::trireme::cuda::softmax(p.x, p.y, p.rows, p.width, stream); }

namespace {

double turns_of(const Problem& p) { return std::ceil(p.width / double{kThreads}); }

// Instructions are those of a warp, as in the code for sm_90a, for rows of 1024.

/// One block per row: `bytes` per value.
MemoryCost block_a_row(const Problem& p, double bytes, double waits, double barriers, double wavefronts,
                       double instructions) {
  const auto rows = static_cast<double>(p.rows);
  return cost_of({.blocks = rows,
                  .resident = 8,
                  .bytes = bytes * rows * p.width,
                  .waits = waits,
                  .barriers = barriers,
                  .wavefronts = wavefronts * p.width / 32,
                  .instructions = 8 * instructions});
}
/// One warp per row. Registers limit the blocks per multiprocessor.
MemoryCost warp_per_row_cost(const Problem& p, double resident, double wavefronts, double instructions) {
  const auto rows = static_cast<double>(p.rows);
  return cost_of({.blocks = std::ceil(rows / 8),
                  .resident = resident,
                  .bytes = 4 * rows * p.width,
                  .waits = 1,
                  .barriers = 0,
                  .wavefronts = 8 * wavefronts,
                  .instructions = 8 * instructions});
}

constexpr std::array all = {
    // The last pass stores in its loop, so that each turn's load waits for the store before it.
    MemoryLevel<Problem>{"three_passes", "maximum, sum, quotient", &three_passes,
                         [](const Problem& p) {
                           return block_a_row(p, 2, unrolled(turns_of(p)), 2, 1, 107) +
                                  block_a_row(p, 2, unrolled(turns_of(p)), 2, 1, 131) +
                                  block_a_row(p, 4, kWaitForL2 + turns_of(p), 0, 2, 116);
                         }},
    MemoryLevel<Problem>{"read_once", "the row stays in shared memory", &read_once,
                         [](const Problem& p) { return block_a_row(p, 4, unrolled(turns_of(p)), 4, 2 + 4, 278); }},
    MemoryLevel<Problem>{"warp_per_row", "registers, shuffles, no barriers", &warp_per_row,
                         [](const Problem& p) { return warp_per_row_cost(p, 5, 2 * 32, 958); }},
    MemoryLevel<Problem>{"softmax", "16 bytes at a time", &shipped,
                         [](const Problem& p) { return warp_per_row_cost(p, 4, 2 * 16, 700); }},
};

}  // namespace

std::span<const MemoryLevel<Problem>> levels() { return all; }

}  // namespace trireme::cuda::lab::softmax
