// Level 4: lanes of a warp exchange registers.
//
// A warp executes together, so its 32 sums need no barrier. Five shuffles, in each of which a lane exchanges sums with
// the lane whose index differs in one bit, give all lanes the total (reduce_warp). Shared memory holds eight numbers,
// one per warp, instead of 256, and the block waits at two barriers instead of nine. All kernels of cuda/kernels that
// reduce rows use this (reduce_block).
// Read next: examples/cuda_lab/gradient_norm/5_vectors.cu.
#include "examples/cuda_lab/gradient_norm/ladder.h"

namespace trireme::cuda::lab::gradient_norm {

namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) shuffles_kernel(const bf16* x, std::int64_t count, float* partials) {
  TRIREME_SHARED(float, scratch, 32);
  const Range tile = my_tile(count);
  float sum = 0;
  for (std::int64_t i = tile.begin + static_cast<int>(threadIdx.x); i < tile.end; i += kThreads)
    sum += to_float(x[i]) * to_float(x[i]);
  sum = reduce_block<Sum>(sum, scratch);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

}  // namespace

void shuffles(const Problem& p, Stream stream) { each_tensor("lab shuffles", p, kThreads, &shuffles_kernel, stream); }

}  // namespace trireme::cuda::lab::gradient_norm
