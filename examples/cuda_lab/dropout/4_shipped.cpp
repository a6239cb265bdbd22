// Level 4: the kernel in use, cuda/kernels/dropout.cu. Compared with level 3, a thread moves 16 bytes, for
// which it calls Philox twice. And the tensor may be a shard of a larger one, whose positions decide what is
// dropped. If a shard's rows are not a multiple of a piece, another kernel finds the word of each value
// separately.
// This file also has the cost of each level.
// Read next: docs/ladder.md.
#include <array>
#include <cmath>

#include "cuda/kernels/dropout.h"
#include "examples/cuda_lab/dropout/ladder.h"

namespace trireme::cuda::lab::dropout {

void shipped(const Problem& p, Stream stream) {
  const Shape shape = {p.count};
  ::trireme::cuda::dropout(p.x, p.y, p.p, p.seed, p.stream, dropout_place(shape, shape, {0}), stream);
}

namespace {

/// `instructions` of a warp, as in the code for sm_90a; a warp's loads and stores move up to 128 bytes a wavefront.
MemoryCost launch_cost(const Problem& p, double per_thread, double bytes, double wavefronts, double instructions,
                       double resident = 8) {
  const auto count = static_cast<double>(p.count);
  return cost_of(
      {std::ceil(count / (kThreads * per_thread)), resident, bytes * count, 1, 0, 8 * wavefronts, 8 * instructions});
}

constexpr std::array all = {
    MemoryLevel<Problem>{"stored_mask", "numbers and mask in memory", &stored_mask,
                         [](const Problem& p) { return launch_cost(p, 1, 4, 1, 114) + launch_cost(p, 1, 9, 4, 39); }},
    MemoryLevel<Problem>{"recomputed", "one kernel, Philox for each value", &recomputed,
                         [](const Problem& p) { return launch_cost(p, 1, 4, 2, 123); }},
    MemoryLevel<Problem>{"four_per_block", "a Philox block for four values", &four_per_block,
                         [](const Problem& p) { return launch_cost(p, 4, 4, 4, 152); }},
    MemoryLevel<Problem>{"dropout", "16 bytes at a time, any shard", &shipped,
                         [](const Problem& p) { return launch_cost(p, 8, 4, 8, 262, 6); }},
};

}  // namespace

std::span<const MemoryLevel<Problem>> levels() { return all; }

}  // namespace trireme::cuda::lab::dropout
