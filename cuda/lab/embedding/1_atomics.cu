// Level 1, the bait: every token adds its row by itself, with atomics.
//
// It is short, it needs no workspace, and for tokens that do not repeat it is about as fast as memory. But f32 addition
// is not associative, and which of two tokens comes first is up to the GPU's schedule: the gradient differs from run to
// run in its last bits, and a run can never be repeated. And where many tokens are the same, as the comma is, their
// additions to one row queue up in L2. So nothing in cuda/kernels uses atomics, and the levels above do without. For a
// GPU only: the tests there compare it with f64, like the others, but do not ask it for the same bits twice.
// Read next: cuda/lab/embedding/2_row_a_block.cu.
#include "cuda/lab/embedding/ladder.h"

#if defined(__CUDACC__)
namespace trireme::cuda::lab::embedding {

namespace {

constexpr int kThreads = 256;

/// A block a token.
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
