// Level 4: the kernel in use, cuda/kernels/softmax.cu. Compared with level 3 a lane moves pieces of 16 bytes: four for
// a row of 1024, and one for rows of up to 256, as in a router, with an eighth of the registers. It takes any
// alignment, f32 and f16. A block takes rows beyond 1024 and reads them twice.
// Read next: docs/ladder.md.
#include <array>

#include "examples/cuda_lab/softmax/ladder.h"

namespace trireme::cuda::lab::softmax {

void shipped(const Problem& p, Stream stream) { ::trireme::cuda::softmax(p.x, p.y, p.rows, p.width, stream); }

namespace {

constexpr std::array all = {
    Level<Problem>{"three_passes", "maximum, sum, quotient", 0.9473, &three_passes},
    Level<Problem>{"read_once", "the row stays in shared memory", 0.4818, &read_once},
    Level<Problem>{"warp_per_row", "registers, shuffles, no barriers", 0.2646, &warp_per_row},
    Level<Problem>{"softmax", "16 bytes at a time", 0.1992, &shipped},
};

}  // namespace

std::span<const Level<Problem>> levels() { return all; }

}  // namespace trireme::cuda::lab::softmax
