// Level 2: one kernel for each tensor, still one element per thread.
//
// Velocity and weight are read once and written once, and the weight is rounded right away: 22 bytes. Loads of 4 bytes
// are wide enough here: a thread has three of them under way at once, of gradient, weight and velocity. These are 12
// bytes, which 2048 threads must have under way to use the full bandwidth (docs/ladder.md).
//
// What is left: 148 launches, most of them for a thousand elements.
// Read next: cuda/kernels/sgd.cu, the kernel in use, and examples/cuda_lab/sgd/3_shipped.cpp on what it adds.
#include "cuda/kernels/pieces.h"
#include "examples/cuda_lab/sgd/ladder.h"

namespace trireme::cuda::lab::sgd {

namespace {

using Tensor = SgdTensor<bf16>;

__global__ void __launch_bounds__(kThreads) fused_kernel(const __grid_constant__ Tensor t, SgdSettings s) {
  const MyPiece mine = my_piece<1>(t.count);
  if (mine.count == 0) return;
  const std::int64_t i = mine.first;
  const float g = t.gradient[i], old = t.weight[i];
  const float v = s.momentum * t.velocity[i] + (s.scale * g + t.decay * old), w = old - s.lr * v;
  t.velocity[i] = v;
  t.weight[i] = w;
  t.low[i] = from_float<bf16>(w);
}

}  // namespace

void fused(const Problem& p, Stream stream) {
  for (const Tensor& t : p.tensors)
    launch({"lab fused", grid_of_pieces(t.count, kThreads, 1), {kThreads, 1, 1}, 0, stream}, &fused_kernel, t,
           p.settings);
}

}  // namespace trireme::cuda::lab::sgd
