// Level 2: one kernel. silu(gate) stays in a register on its way to the product.
//
// This takes 6 bytes an output instead of 14, and one launch less. Now the bytes are no longer the limit: a thread
// loads 2 bytes of the gate and 2 of up, waits, and is done. 2048 threads of a multiprocessor have 8 KB under way, a
// third of what full bandwidth needs (docs/ladder.md).
// Read next: cuda/kernels/elementwise.cu, the kernel in use, and examples/cuda_lab/swiglu/3_shipped.cpp on what it
// adds.
#include "cuda/kernels/functions.h"
#include "examples/cuda_lab/swiglu/ladder.h"

namespace trireme::cuda::lab::swiglu {

namespace {

__global__ void __launch_bounds__(kThreads) fused_kernel(const __grid_constant__ Problem p) {
  const std::int64_t column = std::int64_t{blockIdx.x} * kThreads + static_cast<int>(threadIdx.x), row = blockIdx.y;
  if (column >= p.width) return;
  const bf16* const gate = p.x + row * 2 * p.width + column;
  p.y[row * p.width + column] = from_float<bf16>(value_of<Unary::silu>(to_float(gate[0])) * to_float(gate[p.width]));
}

}  // namespace

void fused(const Problem& p, Stream stream) {
  launch({"lab fused", grid_of(p), {kThreads, 1, 1}, 0, stream}, &fused_kernel, p);
}

}  // namespace trireme::cuda::lab::swiglu
