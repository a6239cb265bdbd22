// Level 4: the kernel in use, cuda/kernels/attention_merge.cu. Compared with level 3, a head of 64 takes eight lanes
// instead of 32, so a warp takes four heads: the same overhead serves four of them. Each lane has eight values, in two
// pieces of 16 bytes of out and 8 of part that are under way together. It takes any strides, width and alignment, and
// f32 and f16 for part. This file also has each level's cost.
// Read next: docs/ladder.md.
#include "cuda/kernels/attention_merge.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "examples/cuda_lab/attention_merge/ladder.h"

namespace trireme::cuda::lab::attention_merge {

void shipped(const Problem& p, Stream stream) {
  const std::int64_t row = p.heads * p.width, sequence = p.tokens * row;
  ::trireme::cuda::attention_merge<bf16>({.batch = p.batch,
                                          .tokens = p.tokens,
                                          .heads = p.heads,
                                          .width = p.width,
                                          .part = p.part,
                                          .part_stride = {sequence, row, p.width},
                                          .part_lse = p.part_lse,
                                          .part_lse_stride = {p.heads * p.tokens, p.tokens, 1},
                                          .out = p.out,
                                          .out_stride = {sequence, row, p.width},
                                          .lse = p.lse,
                                          .lse_stride = {p.heads * p.tokens, p.tokens, 1}},
                                         stream);
}

namespace {

double rows(const Problem& p) { return static_cast<double>(p.rows()); }
double values(const Problem& p) { return rows(p) * p.width; }

// Instructions are those of a warp, as in the code for sm_90a, for heads of 64.

/// One value per thread: `bytes` for each value, and 4 for each row's factor.
MemoryCost value_a_thread(const Problem& p, double bytes, double wavefronts, double instructions) {
  return cost_of(
      {std::ceil(values(p) / kThreads), 8, bytes * values(p) + 4 * rows(p), 1, 0, 8 * wavefronts, 8 * instructions});
}
/// One launch: out in and out, part in; both lse in, one out. `heads` for each warp.
MemoryCost fused(const Problem& p, double heads, double resident, double waits, double wavefronts,
                 double instructions) {
  return cost_of({.blocks = std::ceil(rows(p) / (8 * heads)),
                  .resident = resident,
                  .bytes = 10 * values(p) + 12 * rows(p),
                  .waits = waits,
                  .barriers = 0,
                  .wavefronts = 8 * wavefronts,
                  .instructions = 8 * instructions});
}

constexpr std::array all = {
    MemoryLevel<Problem>{"unfused", "factors, scale, add; one value per thread", &unfused,
                         [](const Problem& p) {
                           const double lse_and_factors = 12 + 8;
                           return cost_of({.blocks = std::ceil(rows(p) / kThreads),
                                           .resident = 8,
                                           .bytes = lse_and_factors * rows(p),
                                           .waits = 1,
                                           .barriers = 0,
                                           .wavefronts = 8 * (3 * 12 + 2.0),
                                           .instructions = 8 * 193}) +
                                  value_a_thread(p, 8, 3, 61) + value_a_thread(p, 10, 4, 66);
                         }},
    // Loads and stores of 32 lines. A sector of out serves eight values, one after the other.
    MemoryLevel<Problem>{
        "thread_per_row", "one kernel, one thread per head", &thread_per_row,
        [](const Problem& p) { return fused(p, 32, 8, 1 + std::ceil(p.width / 8.0), 96.0 * p.width, 722); }},
    // The loop stores: each turn waits.
    MemoryLevel<Problem>{"warp_per_row", "one warp per head", &warp_per_row,
                         [](const Problem& p) {
                           const double turns = std::ceil(p.width / 32.0);
                           return fused(p, 1, 6, 1 + turns, 3 + 3 * turns, 258);
                         }},
    // Eight values per lane, in a loop if that takes more than a warp.
    MemoryLevel<Problem>{"attention_merge", "four heads per warp, 16 bytes at a time", &shipped,
                         [](const Problem& p) {
                           const double lanes =
                               std::min(32.0, std::exp2(std::max(0.0, std::ceil(std::log2(p.width / 8.0)))));
                           const double turns = std::ceil(p.width / (8 * lanes));
                           return fused(p, 32 / lanes, 5, 1 + turns, 3 * 32 / lanes + 20 * turns, 378);
                         }},
};

}  // namespace

std::span<const MemoryLevel<Problem>> levels() { return all; }

}  // namespace trireme::cuda::lab::attention_merge
