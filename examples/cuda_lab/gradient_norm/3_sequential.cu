// Level 3: the tree adds halves instead of neighbours.
//
// In each step the first half of the threads adds the sums of the second half. Active threads are neighbours, so
// whole warps end after each step, and from 32 threads on only one warp continues. The sums stay in place; only
// the order of the steps is new. But most of the time goes elsewhere: a thread still loads its 16 values one by
// one. (nvcc unrolls that loop by four, so it waits four times. The source does not show this, and cannot rely on
// it.)
// Read next: examples/cuda_lab/gradient_norm/4_shuffles.cu.
#include "examples/cuda_lab/gradient_norm/ladder.h"

namespace trireme::cuda::lab::gradient_norm {

namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) sequential_kernel(const bf16* x, std::int64_t count, float* partials) {
  TRIREME_SHARED(float, sums, kThreads);
  const int thread = static_cast<int>(threadIdx.x);
  const Range tile = my_tile(count);
  float sum = 0;
  for (std::int64_t i = tile.begin + thread; i < tile.end; i += kThreads) sum += to_float(x[i]) * to_float(x[i]);
  sums[thread] = sum;
  sync_threads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (thread < half) sums[thread] += sums[thread + half];
    sync_threads();
  }
  if (thread == 0) partials[blockIdx.x] = sums[0];
}

}  // namespace

void sequential(const Problem& p, Stream stream) {
  each_tensor("lab sequential", p, kThreads, &sequential_kernel, stream);
}

}  // namespace trireme::cuda::lab::gradient_norm
