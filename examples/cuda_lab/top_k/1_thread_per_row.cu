// Level 1: one thread per row, in k rounds over it. Each round finds the largest value after the last one chosen. Value
// and column are one integer (cuda/kernels/order_key.h), so that equal values are ordered too.
//
// The CPU's top_k does the same. Here it means that the lanes of a warp read from 32 rows, 32 wavefronts per load, and
// that 16,384 rows are only 64 blocks, for 132 multiprocessors.
// Read next: examples/cuda_lab/top_k/2_warp_per_row.cu.
#include "cuda/kernels/order_key.h"
#include "examples/cuda_lab/top_k/ladder.h"

namespace trireme::cuda::lab::top_k {

namespace {

__global__ void __launch_bounds__(kThreads) thread_per_row_kernel(const __grid_constant__ Problem p) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kThreads + static_cast<int>(threadIdx.x);
  if (row >= p.rows) return;
  std::int64_t last = kAll;
  for (int place = 0; place < p.k; ++place) {
    std::int64_t best = kNone;
    for (int c = 0; c < p.width; ++c) best = larger_below(last, best, order_key(p.x[row * p.width + c], c));
    p.chosen[row * p.k + place] = column_of(best);
    last = best;
  }
}

}  // namespace

void thread_per_row(const Problem& p, Stream stream) {
  launch({"lab top_k thread_per_row",
          {static_cast<unsigned>((p.rows + kThreads - 1) / kThreads), 1, 1},
          {kThreads, 1, 1},
          0,
          stream},
         &thread_per_row_kernel, p);
}

}  // namespace trireme::cuda::lab::top_k
