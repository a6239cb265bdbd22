// Level 1, tempting but wrong: every token adds its own row, with atomics.
//
// It is short, needs no workspace, and is about as fast as memory if tokens do not repeat. But f32 addition is not
// associative, and the GPU's schedule decides which of two tokens comes first: the last bits of the gradient differ
// from run to run, so no run is reproducible. And if many tokens are the same, such as the comma, their additions to
// one row queue up in L2. So cuda/kernels and the levels above use no atomics. This level runs only on a GPU: tests
// there compare it with f64, like the others, but do not expect the same bits twice.
// Read next: examples/cuda_lab/embedding/2_block_per_row.cu.
#include "examples/cuda_lab/embedding/ladder.h"

#if defined(__CUDACC__)
namespace trireme::cuda::lab::embedding {

namespace {

constexpr int kThreads = 256;

/// One block per token.
__global__ void __launch_bounds__(kThreads) atomics_kernel(const __grid_constant__ Problem p) {
  const std::int64_t token = blockIdx.x, id = p.ids[token];
  if (id < 0 || id >= p.vocabulary) return;
  for (int c = static_cast<int>(threadIdx.x); c < p.width; c += kThreads)
    atomicAdd(p.dweight + id * p.width + c, to_float(p.dy[token * p.width + c]));
}

}  // namespace

void atomics(const Problem& p, Stream stream) {
  launch({"lab atomics", {static_cast<unsigned>(p.tokens), 1, 1}, {kThreads, 1, 1}, 0, stream}, &atomics_kernel, p);
}

}  // namespace trireme::cuda::lab::embedding
#endif
