// Level 4: the kernel in use, cuda/kernels/norm.cu. Unlike level 3 it does both in one pass: a block takes every 264th
// row, computes its dx, and adds the row to the columns' sums, which it keeps in shared memory from row to row. h and
// dy come from memory once, in pieces of 16 bytes; the second look at a row, for dx, finds it in L1. 8 bytes a value.
// This file also has the cost of each level.
// Read next: docs/ladder.md.
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
  return cost_of({static_cast<double>(p.rows), 8, 8 * values(p), 2 * column_blocks(p), 4, 12.0 * p.width / 64});
}
MemoryCost add_cost(const Problem& p) {
  return cost_of({column_blocks(p), 8, 8 * parts(p) * p.width, kWaitForL2 * unrolled(parts(p)), 0, parts(p) * 2 * 8});
}

constexpr std::array all = {
    // Two sectors a value, and two floats a row that stay in L1; a warp's load of h or dy is 32 lines.
    MemoryLevel<Problem>{"column_a_block", "a block a column", &column_a_block,
                         [](const Problem& p) {
                           return rows_cost(p) + cost_of({static_cast<double>(p.width), 8, 64 * values(p),
                                                          unrolled(p.rows / 256.0), 4, p.rows / 32.0 * 66});
                         }},
    MemoryLevel<Problem>{
        "column_a_thread", "neighbours read neighbours", &column_a_thread,
        [](const Problem& p) {
          return rows_cost(p) + cost_of({column_blocks(p), 8, 4 * values(p), unrolled(p.rows), 0, p.rows * 8.0 * 4});
        }},
    MemoryLevel<Problem>{"tiles", "264 parts, added in order", &tiles,
                         [](const Problem& p) {
                           const double each = std::ceil(p.rows / parts(p));
                           return rows_cost(p) + add_cost(p) +
                                  cost_of({column_blocks(p) * parts(p), 8, 4 * values(p) + 8 * parts(p) * p.width,
                                           unrolled(each), 0, each * 8 * 4});
                         }},
    // A row at a time: one wait for its pieces, four barriers.
    MemoryLevel<Problem>{"norm", "columns' sums beside the rows", &shipped,
                         [](const Problem& p) {
                           const double each = std::ceil(p.rows / parts(p)), pieces = std::ceil(p.width / 2048.0);
                           return add_cost(p) + cost_of({parts(p), 4, 8 * values(p) + 8 * parts(p) * p.width,
                                                         each * 2 * pieces, each * 4, each * p.width * 12.0 / 128});
                         }},
};

}  // namespace

std::span<const MemoryLevel<Problem>> levels() { return all; }

}  // namespace trireme::cuda::lab::norm_backward
