// Level 2: 256 threads share a tile, and join their sums in a tree.
//
// Neighbours read neighbours: a warp's load is 64 bytes in two sectors, and the 2048 threads of a multiprocessor wait
// at the same time. Then 256 sums become one in eight steps. In a step of distance s, threads whose index is a multiple
// of 2s add the sum s further on. So every warp stays in the tree to the end, with fewer and fewer active lanes: 8
// warps take 8 steps each, where 12 steps of a warp in total are enough.
// Read next: examples/cuda_lab/gradient_norm/3_sequential.cu.
#include "examples/cuda_lab/gradient_norm/ladder.h"

namespace trireme::cuda::lab::gradient_norm {

namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) interleaved_kernel(const bf16* x, std::int64_t count, float* partials) {
  TRIREME_SHARED(float, sums, kThreads);
  const int thread = static_cast<int>(threadIdx.x);
  const Range tile = my_tile(count);
  float sum = 0;
  for (std::int64_t i = tile.begin + thread; i < tile.end; i += kThreads) sum += to_float(x[i]) * to_float(x[i]);
  sums[thread] = sum;
  sync_threads();
  for (int step = 1; step < kThreads; step *= 2) {
    if (thread % (2 * step) == 0) sums[thread] += sums[thread + step];
    sync_threads();
  }
  if (thread == 0) partials[blockIdx.x] = sums[0];
}

}  // namespace

void interleaved(const Problem& p, Stream stream) {
  each_tensor("lab interleaved", p, kThreads, &interleaved_kernel, stream);
}

}  // namespace trireme::cuda::lab::gradient_norm
