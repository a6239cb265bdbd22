// Level 3: the kernel in use, cuda/kernels/rank_order.cu. Compared with level 2 it moves 16 bytes at a time. It takes
// every dtype, maxima as well as sums, any alignment, and a result in place of one rank's values. Its loop checks at
// each rank whether the sixteen bytes are whole and aligned, so nvcc does not overlap the loads: one wait per rank.
// This file also has the cost of each level.
// Read next: docs/ladder.md.
#include <array>
#include <cmath>

#include "cuda/kernels/rank_order.h"
#include "examples/cuda_lab/rank_order/ladder.h"

namespace trireme::cuda::lab::rank_order {

void shipped(const Problem& p, Stream stream) {
  combine_in_order(DType::bf16, Reduction::sum, p.x, p.rows, p.count, p.y, stream);
}

namespace {

/// Blocks of 256 threads, and of eight warps' wavefronts.
MemoryCost pass(const Problem& p, double bytes_per_value, double at_a_time, double waits, double wavefronts) {
  const double count = static_cast<double>(p.count);
  return cost_of({.blocks = std::ceil(count / (256 * at_a_time)),
                  .resident = 8,
                  .bytes = bytes_per_value * count,
                  .waits = waits,
                  .barriers = 0,
                  .wavefronts = 8 * wavefronts});
}

constexpr std::array all = {
    // A rank's values in bf16 and the sum in f32, in and out; the first rank finds no sum, the last leaves y instead.
    MemoryLevel<Problem>{"rank_by_rank", "one launch per rank, the sum in memory", &rank_by_rank,
                         [](const Problem& p) {
                           MemoryCost cost = {};
                           for (int row = 0; row < p.rows; ++row) {
                             const double in = row > 0 ? 4 : 0, out = row + 1 < p.rows ? 4 : 2;
                             cost = cost + pass(p, 2 + in + out, 1, 1, row > 0 ? 3 : 2);
                           }
                           return cost;
                         }},
    MemoryLevel<Problem>{
        "one_launch", "the sum in a register", &one_launch,
        [](const Problem& p) { return pass(p, 2 * (p.rows + 1), 1, 1 + unrolled(p.rows - 1), p.rows + 1); }},
    // A load of a warp is 512 bytes, four wavefronts.
    MemoryLevel<Problem>{"rank_order", "16 bytes at a time", &shipped,
                         [](const Problem& p) { return pass(p, 2 * (p.rows + 1), 8, p.rows, 4 * (p.rows + 1)); }},
};

}  // namespace

std::span<const MemoryLevel<Problem>> levels() { return all; }

}  // namespace trireme::cuda::lab::rank_order
