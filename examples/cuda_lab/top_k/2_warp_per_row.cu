// Level 2: one warp per row. Each lane finds the largest of its values; then the lanes reduce in five shuffles.
//
// A load is one line, and there are enough warps for every multiprocessor. But a lane has two values of a row of 64,
// and the rows are read k times: from L1 after the first time, and a load from there is still a wait.
// Read next: examples/cuda_lab/top_k/3_in_registers.cu.
#include "cuda/kernels/order_key.h"
#include "examples/cuda_lab/top_k/ladder.h"

namespace trireme::cuda::lab::top_k {

namespace {

constexpr int kRows = kThreads / 32;

__global__ void __launch_bounds__(kThreads) warp_per_row_kernel(const __grid_constant__ Problem p) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t row = std::int64_t{blockIdx.x} * kRows + static_cast<int>(threadIdx.x) / 32;
  if (row >= p.rows) return;  // uniform over the warp
  std::int64_t last = kAll;
  for (int place = 0; place < p.k; ++place) {
    std::int64_t best = kNone;
    for (int c = lane; c < p.width; c += 32) best = larger_below(last, best, order_key(p.x[row * p.width + c], c));
    last = largest_of(best, 32);
    if (lane == 0) p.chosen[row * p.k + place] = column_of(last);
  }
}

}  // namespace

void warp_per_row(const Problem& p, Stream stream) {
  launch({"lab top_k warp_per_row",
          {static_cast<unsigned>((p.rows + kRows - 1) / kRows), 1, 1},
          {kThreads, 1, 1},
          0,
          stream},
         &warp_per_row_kernel, p);
}

}  // namespace trireme::cuda::lab::top_k
