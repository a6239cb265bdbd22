// Level 4: the kernel in use, embedding_backward of cuda/kernels/embedding.cu. It is level 2 with up to 512 blocks,
// each with rows that are far apart, so the ids are read a hundred times less: 34 MB. A block lists those of its rows
// in shared memory, in order, with ballots. When the list is full, it adds the listed rows of dy, eight at a time:
// their loads, and those of their rows of dweight, are under way together, as are the next eight rows of dy. Unlike
// level 3 it takes any number of tokens and any slice of the vocabulary, in one launch and without workspace. This file
// also has the cost of each level. Read next: docs/ladder.md.
#include <algorithm>
#include <array>
#include <cmath>

#include "cuda/kernels/embedding.h"
#include "examples/cuda_lab/embedding/ladder.h"

namespace trireme::cuda::lab::embedding {

void shipped(const Problem& p, Stream stream) {
  embedding_backward(p.dy, p.ids, 0, p.tokens, p.vocabulary, p.width, p.dweight, stream);
}

namespace {

/// A token's row of dy is read, its row of dweight read and written. As if no token repeated.
double row_bytes(const Problem& p) { return 10.0 * p.tokens * p.width; }
double row_wavefronts(const Problem& p) { return p.width / 32.0 * 3; }

#if defined(__CUDACC__)
MemoryCost atomics_cost(const Problem& p) {
  return cost_of(
      {static_cast<double>(p.tokens), 8, row_bytes(p), 2 * std::ceil(p.width / 256.0), 0, row_wavefronts(p)});
}
#endif

// The ids come from L2: they cost waits, but no bytes of memory. Repeated tokens are not counted either: in all levels
// a row with many tokens keeps its block busy in proportion to them.
constexpr std::array all = {
#if defined(__CUDACC__)
    MemoryLevel<Problem>{"atomics", "each token by itself; other bits each time", &atomics, &atomics_cost},
#endif
    MemoryLevel<Problem>{"block_per_row", "a block looks for the tokens of its row", &block_per_row,
                         [](const Problem& p) {
                           const double turns = std::ceil(p.tokens / 256.0);
                           return cost_of({.blocks = static_cast<double>(p.vocabulary),
                                           .resident = 8,
                                           .bytes = row_bytes(p),
                                           .waits = kWaitForL2 * turns,
                                           .barriers = 2 * turns,
                                           .wavefronts = turns * 16});
                         }},
    // Bitonic steps of n keys: log n (log n + 1) / 2 barriers, and each thread's pairs in between.
    MemoryLevel<Problem>{"sorted", "sort, then a block a segment", &sorted,
                         [](const Problem& p) {
                           const double log_n = std::ceil(std::log2(p.tokens)), steps = log_n * (log_n + 1) / 2;
                           const double pairs = std::exp2(log_n) / 2;
                           const MemoryCost sort = cost_of({.blocks = 1,
                                                            .resident = 1,
                                                            .bytes = 20.0 * p.tokens,
                                                            .waits = 2,
                                                            .barriers = steps,
                                                            .wavefronts = steps * pairs / 32 * 8});
                           return sort + cost_of({.blocks = static_cast<double>(p.tokens),
                                                  .resident = 8,
                                                  .bytes = row_bytes(p),
                                                  .waits = 1 + std::ceil(p.width / 256.0),
                                                  .barriers = 0,
                                                  .wavefronts = row_wavefronts(p)});
                         }},
    // A block reads eight ids of each of its 192 threads ahead. It waits for its list eight rows at a time.
    MemoryLevel<Problem>{"embedding", "lists, eight rows at a time", &shipped,
                         [](const Problem& p) {
                           const double groups = std::exp2(std::ceil(std::log2(std::min(p.vocabulary, 512))));
                           const double turns = std::ceil(p.tokens / (8 * 192.0)), batches = p.tokens / groups / 8;
                           const double stretches = std::ceil(p.width / (4 * 192.0));
                           return cost_of({.blocks = groups * stretches,
                                           .resident = 2,
                                           .bytes = row_bytes(p),
                                           .waits = kWaitForL2 * turns + std::ceil(batches),
                                           .barriers = turns + 2,
                                           .wavefronts = turns * 48 + row_wavefronts(p) * p.tokens / groups,
                                           .instructions = 6 * (turns * 130 + batches * 510)});
                         }},
};

}  // namespace

std::span<const MemoryLevel<Problem>> levels() { return all; }

}  // namespace trireme::cuda::lab::embedding
