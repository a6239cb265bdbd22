// Level 1: two kernels, silu(gate) and the product with up. An output a thread.
//
// This is how a framework does it: y = silu(gate) * up, two operations over tensors. The first writes what the second
// reads, in f32, so that y is rounded once: 14 bytes an output, where 6 are needed. In bf16 it would be 10, with y
// rounded twice.
// Read next: examples/cuda_lab/swiglu/2_fused.cu.
#include "cuda/kernels/functions.h"
#include "examples/cuda_lab/swiglu/ladder.h"

namespace trireme::cuda::lab::swiglu {

namespace {

__global__ void __launch_bounds__(kThreads) silu_kernel(const __grid_constant__ Problem p) {
  const std::int64_t column = std::int64_t{blockIdx.x} * kThreads + static_cast<int>(threadIdx.x), row = blockIdx.y;
  if (column < p.width)
    p.silu[row * p.width + column] = value_of<Unary::silu>(to_float(p.x[row * 2 * p.width + column]));
}

__global__ void __launch_bounds__(kThreads) multiply_kernel(const __grid_constant__ Problem p) {
  const std::int64_t column = std::int64_t{blockIdx.x} * kThreads + static_cast<int>(threadIdx.x), row = blockIdx.y;
  const std::int64_t at = row * p.width + column;
  if (column < p.width) p.y[at] = from_float<bf16>(p.silu[at] * to_float(p.x[(2 * row + 1) * p.width + column]));
}

}  // namespace

void unfused(const Problem& p, Stream stream) {
  launch({"lab silu", grid_of(p), {kThreads, 1, 1}, 0, stream}, &silu_kernel, p);
  launch({"lab multiply", grid_of(p), {kThreads, 1, 1}, 0, stream}, &multiply_kernel, p);
}

}  // namespace trireme::cuda::lab::swiglu
