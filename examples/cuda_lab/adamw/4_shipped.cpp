// Level 4: the kernel in use, adamw of cuda/kernels/optimizer.cu. Compared with level 3, a launch takes up to 64
// tensors, as a list in its parameters; a block takes 4096 elements of one. The low copy is optional, and gradients may
// be f32 with a 16-bit copy. The factor comes from a kernel of one thread, in f64 as on the CPU, which looks at the
// loss as well; SGD reads the same number. Read next: docs/ladder.md.
#include <array>

#include "cuda/kernels/update_scale.h"
#include "examples/cuda_lab/adamw/ladder.h"

namespace trireme::cuda::lab::adamw {

void shipped(const Problem& p, Stream stream) {
  update_scale(nullptr, p.norm_squared, 1 / static_cast<double>(p.settings.gradient_scale),
               static_cast<double>(p.max_norm), p.scaled, stream);
  ::trireme::cuda::adamw(p.tensors, p.settings, p.scaled, stream);
}

namespace {

constexpr std::array all = {
    Level<Problem>{"unfused", "scale, update, round; one element per thread", 2.926, &unfused},
    Level<Problem>{"vectors", "16 bytes at a time", 2.252, &vectors},
    Level<Problem>{"fused", "one kernel", 1.346, &fused},
    Level<Problem>{"optimizer", "64 tensors in a launch", 0.8803, &shipped},
};

}  // namespace

std::span<const Level<Problem>> levels() { return all; }

}  // namespace trireme::cuda::lab::adamw
