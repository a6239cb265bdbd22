// Level 4: the kernels in use on one rank, cuda/kernels/cross_entropy.cu. Over level 3 they have
//   pieces of 16 bytes: a thread asks for four pieces of eight logits at once, and looks for a larger maximum once for
//   all eight;
//   the row in shared memory between the passes: no second read, from L2 either;
//   exponentials in base 2, which are one instruction;
//   label smoothing, and losses in f64.
// With the vocabulary sharded over ranks, the ranks must join their statistics between the passes, and a kernel cannot
// wait for that: then statistics and gradient are two launches, with 6 bytes per logit instead of 4.
// This file also has the cost of each level.
// Read next: docs/ladder.md.
#include <array>
#include <cmath>

#include "examples/cuda_lab/cross_entropy/ladder.h"

namespace trireme::cuda::lab::cross_entropy {

void shipped(const Problem& p, Stream stream) {
  cross_entropy_one_pass(p.rows, p.scale, p.gradients, stream);
  cross_entropy_losses(p.rows, p.losses, stream);
}

namespace {

/// One block per row: `moved` bytes per logit between memory and the block, of `width` logits per load. `waits`: for
/// each load.
MemoryCost pass(const Problem& p, int threads, int width, double moved, double waits = 1) {
  const double rows = p.rows.rows, columns = p.rows.columns;
  return cost_of({.blocks = rows,
                  .resident = 2048.0 / threads,
                  .bytes = moved * rows * columns,
                  .waits = waits * std::ceil(columns / (threads * width)),
                  .barriers = 4,
                  .wavefronts = moved * columns / (width > 1 ? 128 : 64)});
}

// Passes that only read are unrolled by four (`unrolled`), those that write the gradients are not.
constexpr std::array all = {
    MemoryLevel<Problem>{
        "three_passes", "maximum, sum, gradient", &three_passes,
        [](const Problem& p) { return pass(p, 256, 1, 2, 0.25) + pass(p, 256, 1, 2, 0.25) + pass(p, 256, 1, 4); }},
    MemoryLevel<Problem>{"two_passes", "running maximum and sum", &two_passes,
                         [](const Problem& p) { return pass(p, 256, 1, 2, 0.25) + pass(p, 256, 1, 4); }},
    // The second pass of a block waits for L2.
    MemoryLevel<Problem>{"one_launch", "the second read from L2", &one_launch,
                         [](const Problem& p) { return pass(p, 1024, 1, 4, 0.25 + kWaitForL2); }},
    // Instructions for eight logits: 105 in the first pass, 85 in the second.
    MemoryLevel<Problem>{"cross_entropy", "16 bytes at a time, the row in shared memory", &shipped,
                         [](const Problem& p) {
                           const double rows = p.rows.rows, columns = p.rows.columns;
                           return cost_of({.blocks = rows,
                                           .resident = 2,
                                           .bytes = 4 * rows * columns,
                                           .waits = std::ceil(columns / (512 * 8 * 4)),
                                           .barriers = 8,
                                           .wavefronts = 8 * columns / 128,
                                           .instructions = columns / 8 / 32 * (105 + 85)}) +
                                  cost_of({.blocks = std::ceil(rows / 256),
                                           .resident = 8,
                                           .bytes = 28 * rows,
                                           .waits = 1,
                                           .barriers = 0,
                                           .wavefronts = 8 * 7});
                         }},
};

}  // namespace

std::span<const MemoryLevel<Problem>> levels() { return all; }

}  // namespace trireme::cuda::lab::cross_entropy
