// Level 4: the kernel in use, cuda/kernels/norm_narrow.cu. Unlike level 3 it does both in one pass: a warp takes a row
// (wider rows than 1024: a team of warps), computes its dx, and adds the row to the columns' sums. All stays in
// registers, so h and dy come from memory once, in pieces of 16 bytes: 8 bytes per value. At its end a block adds the
// sums of its eight warps; then blocks of 32 columns add those of the blocks, each warp an eighth of them. This file
// also has the cost of each level. Read next: docs/ladder.md.
#include <array>
#include <cmath>

#include "examples/cuda_lab/norm_backward/ladder.h"

namespace trireme::cuda::lab::norm_backward {

void shipped(const Problem& p, Stream stream) { ::trireme::cuda::norm_backward(p, stream); }

namespace {

double values(const Problem& p) { return static_cast<double>(p.rows) * p.width; }
double column_blocks(const Problem& p) { return std::ceil(p.width / 256.0); }
double parts(const Problem& p) { return norm_backward_blocks(p.rows); }

MemoryCost rows_cost(const Problem& p) {
  // The second read of h and dy comes from L1: it counts as wavefronts, not as bytes.
  return cost_of({.blocks = static_cast<double>(p.rows),
                  .resident = 8,
                  .bytes = 8 * values(p),
                  .waits = 2 * column_blocks(p),
                  .barriers = 4,
                  .wavefronts = 12.0 * p.width / 64});
}
MemoryCost add_cost(const Problem& p) {
  return cost_of({.blocks = column_blocks(p),
                  .resident = 8,
                  .bytes = 8 * parts(p) * p.width,
                  .waits = kWaitForL2 * unrolled(parts(p)),
                  .barriers = 0,
                  .wavefronts = parts(p) * 2 * 8});
}

constexpr std::array all = {
    // Two sectors a value, and two floats a row that stay in L1; a warp's load of h or dy is 32 lines.
    MemoryLevel<Problem>{"block_per_column", "one block per column", &block_per_column,
                         [](const Problem& p) {
                           return rows_cost(p) + cost_of({.blocks = static_cast<double>(p.width),
                                                          .resident = 8,
                                                          .bytes = 64 * values(p),
                                                          .waits = unrolled(p.rows / 256.0),
                                                          .barriers = 4,
                                                          .wavefronts = p.rows / 32.0 * 66});
                         }},
    MemoryLevel<Problem>{"thread_per_column", "neighbours read neighbours", &thread_per_column,
                         [](const Problem& p) {
                           return rows_cost(p) + cost_of({.blocks = column_blocks(p),
                                                          .resident = 8,
                                                          .bytes = 4 * values(p),
                                                          .waits = unrolled(p.rows),
                                                          .barriers = 0,
                                                          .wavefronts = p.rows * 8.0 * 4});
                         }},
    MemoryLevel<Problem>{"tiles", "264 parts, added in order", &tiles,
                         [](const Problem& p) {
                           const double each = std::ceil(p.rows / parts(p));
                           return rows_cost(p) + add_cost(p) +
                                  cost_of({.blocks = column_blocks(p) * parts(p),
                                           .resident = 8,
                                           .bytes = 4 * values(p) + 8 * parts(p) * p.width,
                                           .waits = unrolled(each),
                                           .barriers = 0,
                                           .wavefronts = each * 8 * 4});
                         }},
    // Eight rows at a time: a warp waits once for its row, and for the gains from L1.
    MemoryLevel<Problem>{"norm", "one warp per row, its columns' sums in registers", &shipped,
                         [](const Problem& p) {
                           const double each = std::ceil(p.rows / parts(p)), turns = std::ceil(each / 8);
                           const MemoryCost add = cost_of({.blocks = std::ceil(p.width / 32.0),
                                                           .resident = 8,
                                                           .bytes = 8 * parts(p) * p.width,
                                                           .waits = kWaitForL2 * unrolled(parts(p) / 8),
                                                           .barriers = 1,
                                                           .wavefronts = parts(p) * 2});
                           return add + cost_of({.blocks = parts(p),
                                                 .resident = 2,
                                                 .bytes = 8 * values(p) + 8 * parts(p) * p.width,
                                                 .waits = turns * (1 + kWaitForL2),
                                                 .barriers = 8,
                                                 .wavefronts = each * p.width * 12.0 / 128});
                         }},
};

}  // namespace

std::span<const MemoryLevel<Problem>> levels() { return all; }

}  // namespace trireme::cuda::lab::norm_backward
