// Level 4: the kernel in use, cuda/kernels/rope.cu. Compared with level 3 a thread takes 16 bytes of each half of a
// head, and their table entries in four loads of 16 bytes: eight pairs share the divisions, and all six loads are under
// way together. It also takes f32 and f16, any alignment, and rotates back for the gradient. This file also has the
// cost of each level.
// Read next: docs/ladder.md.
#include <array>
#include <cmath>

#include "examples/cuda_lab/rope/ladder.h"

namespace trireme::cuda::lab::rope {

void shipped(const Problem& p, Stream stream) { ::trireme::cuda::rope(p, stream); }

namespace {

double values(const Problem& p) { return static_cast<double>(p.batch * p.tokens * p.heads * p.head_dim); }
double table_bytes(const Problem& p) { return 4.0 * static_cast<double>(p.tokens * p.head_dim); }

/// `instructions` of a warp, as in the code for sm_90a.
MemoryCost turn(const Problem& p, double per_thread, double resident, double waits, double wavefronts,
                double instructions, double more_bytes) {
  return cost_of({.blocks = std::ceil(values(p) / (kThreads * per_thread)),
                  .resident = resident,
                  .bytes = 4 * values(p) + more_bytes,
                  .waits = waits,
                  .barriers = 0,
                  .wavefronts = 8 * wavefronts,
                  .instructions = 8 * instructions});
}
MemoryCost make(const Problem& p) {
  const double angles = static_cast<double>(p.tokens * p.head_dim) / 2;
  return cost_of({.blocks = std::ceil(angles / kThreads),
                  .resident = 8,
                  .bytes = table_bytes(p),
                  .waits = 1,
                  .barriers = 0,
                  .wavefronts = 8 * 2,
                  .instructions = 8 * 410});
}

constexpr std::array all = {
    MemoryLevel<Problem>{"angles", "one value per thread, angles in f64", &angles,
                         [](const Problem& p) { return turn(p, 1, 6, 1 + kWaitForL2, 3, 490, 0); }},
    // A thread waits for its position before it can load x.
    MemoryLevel<Problem>{"table", "cosines and sines made once", &table,
                         [](const Problem& p) { return make(p) + turn(p, 1, 8, 1, 5, 178, table_bytes(p)); }},
    MemoryLevel<Problem>{"pairs", "two values share their angle", &pairs,
                         [](const Problem& p) { return make(p) + turn(p, 2, 8, 1, 6, 160, table_bytes(p)); }},
    MemoryLevel<Problem>{"rope", "16 bytes of each half", &shipped,
                         [](const Problem& p) { return make(p) + turn(p, 16, 6, 1, 16 + 4, 310, table_bytes(p)); }},
};

}  // namespace

std::span<const MemoryLevel<Problem>> levels() { return all; }

}  // namespace trireme::cuda::lab::rope
