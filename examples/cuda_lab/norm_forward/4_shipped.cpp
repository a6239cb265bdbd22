// Level 4: the kernel in use, cuda/kernels/norm_narrow.cu. Compared with level 3 a warp takes a row (of up to 1024; a
// team of warps takes wider ones) and keeps it in registers. It moves pieces of 16 bytes, waits once for a row, and
// needs no barrier, because its sums are shuffles. It takes any alignment, and the residual is optional. This file also
// has the cost of each level. Read next: docs/ladder.md.
#include <array>
#include <cmath>

#include "examples/cuda_lab/norm_forward/ladder.h"

namespace trireme::cuda::lab::norm_forward {

void shipped(const Problem& p, Stream stream) { ::trireme::cuda::norm_forward(p, stream); }

namespace {

double values(const Problem& p) { return static_cast<double>(p.rows) * p.width; }

/// One block of 256 threads per row; `waits` per iteration of a thread.
MemoryCost per_row(const Problem& p, double bytes_per_value, double at_a_time, double waits) {
  const double turns = std::ceil(p.width / (256 * at_a_time));
  // A load of a warp moves up to 128 bytes a wavefront.
  const double wavefronts = bytes_per_value * p.width / (at_a_time > 1 ? 128 : 64);
  return cost_of({.blocks = static_cast<double>(p.rows),
                  .resident = 8,
                  .bytes = bytes_per_value * values(p),
                  .waits = waits * turns,
                  .barriers = 4,
                  .wavefronts = wavefronts});
}

constexpr std::array all = {
    // The sum: 6 bytes per value. Then 128 rows per block: a warp's load is 32 lines; a sector serves sixteen of them.
    MemoryLevel<Problem>{"thread_per_row", "one thread per row", &thread_per_row,
                         [](const Problem& p) {
                           const double rows = p.rows, width = p.width;
                           return cost_of({.blocks = std::ceil(values(p) / 256),
                                           .resident = 8,
                                           .bytes = 6 * values(p),
                                           .waits = 1,
                                           .barriers = 0,
                                           .wavefronts = 8 * 3}) +
                                  cost_of({.blocks = std::ceil(rows / 128),
                                           .resident = 16,
                                           .bytes = 8 * values(p),
                                           .waits = 3 * std::ceil(width / 16),
                                           .barriers = 0,
                                           .wavefronts = 4 * 32 * 4 * width});
                         }},
    MemoryLevel<Problem>{"block_per_row", "one block per row, the sum on the way", &block_per_row,
                         [](const Problem& p) { return per_row(p, 12, 1, 3); }},
    MemoryLevel<Problem>{"read_once", "the row stays in shared memory", &read_once,
                         [](const Problem& p) { return per_row(p, 8, 1, 2); }},
    // Eight rows per block. The gains and shifts come from L1.
    MemoryLevel<Problem>{"norm", "one warp per row, 16 bytes at a time", &shipped,
                         [](const Problem& p) {
                           return cost_of({.blocks = std::ceil(p.rows / 8.0),
                                           .resident = 2,
                                           .bytes = 8 * values(p),
                                           .waits = 1 + kWaitForL2,
                                           .barriers = 0,
                                           .wavefronts = 8 * 12.0 * p.width / 128});
                         }},
};

}  // namespace

std::span<const MemoryLevel<Problem>> levels() { return all; }

}  // namespace trireme::cuda::lab::norm_forward
