// Level 3: the kernel in use, embedding of cuda/kernels/embedding.cu, which gathers for experts, too. Compared with
// level 2 it moves 16 bytes at a time, so a row of up to 1024 is one load for each of 128 threads: two waits are left,
// for the index and for the row. In rows of 768, 96 of the threads have a piece. It takes any alignment, and a slice of
// the rows. This file also has the cost of each level.
// Read next: docs/ladder.md.
#include <array>
#include <cmath>

#include "cuda/kernels/embedding.h"
#include "examples/cuda_lab/gather/ladder.h"

namespace trireme::cuda::lab::gather {

void shipped(const Problem& p, Stream stream) {
  cuda::embedding(p.x, p.index, 0, p.picks, p.rows, p.width, p.y, stream);
}

namespace {

/// Read and written once; an index for each row. A row that is picked twice counts twice, although L2 may have it.
double all_bytes(const Problem& p) { return 4.0 * p.picks * p.width + 4.0 * p.picks; }

constexpr std::array all = {
    // A load of a warp is 32 lines, and so is a store; a sector of a thread's row serves sixteen loads.
    MemoryLevel<Problem>{"thread_per_row", "one thread per row", &thread_per_row,
                         [](const Problem& p) {
                           return cost_of({.blocks = std::ceil(p.picks / 128.0),
                                           .resident = 16,
                                           .bytes = all_bytes(p),
                                           .waits = 1 + std::ceil(p.width / 16.0),
                                           .barriers = 0,
                                           .wavefronts = 4 * 64.0 * p.width});
                         }},
    // Wavefronts: the index for each of eight warps; 64 bytes per load and per store.
    MemoryLevel<Problem>{"block_per_row", "one block per row", &block_per_row,
                         [](const Problem& p) {
                           return cost_of({.blocks = static_cast<double>(p.picks),
                                           .resident = 8,
                                           .bytes = all_bytes(p),
                                           .waits = 1 + std::ceil(p.width / 256.0),
                                           .barriers = 0,
                                           .wavefronts = 8 + p.width / 16.0});
                         }},
    MemoryLevel<Problem>{"embedding", "16 bytes at a time", &shipped,
                         [](const Problem& p) {
                           const double stretches = std::ceil(p.width / 1024.0);
                           return cost_of({.blocks = p.picks * stretches,
                                           .resident = 16,
                                           .bytes = all_bytes(p),
                                           .waits = 2,
                                           .barriers = 0,
                                           .wavefronts = 4 + p.width / stretches / 32.0});
                         }},
};

}  // namespace

std::span<const MemoryLevel<Problem>> levels() { return all; }

}  // namespace trireme::cuda::lab::gather
