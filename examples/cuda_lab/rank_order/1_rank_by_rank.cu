// Level 1: one launch per rank, which adds that rank's values to the sum so far.
//
// It can begin when the first rank's values arrive. But for every rank the sum is written and read again, in f32,
// because the sum may be rounded to bf16 only once: 34 bytes per value for four ranks, where 10 are enough.
// Read next: examples/cuda_lab/rank_order/2_one_launch.cu.
#include "examples/cuda_lab/rank_order/ladder.h"

namespace trireme::cuda::lab::rank_order {

namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) rank_kernel(const __grid_constant__ Problem p, int row) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + static_cast<int>(threadIdx.x);
  if (i >= p.count) return;
  float sum = to_float(p.x[row * p.count + i]);
  if (row > 0) sum = p.sums[i] + sum;
  if (row + 1 < p.rows)
    p.sums[i] = sum;
  else
    p.y[i] = from_float<bf16>(sum);
}

}  // namespace

void rank_by_rank(const Problem& p, Stream stream) {
  const Dim3 grid = {static_cast<unsigned>((p.count + kThreads - 1) / kThreads), 1, 1};
  for (int row = 0; row < p.rows; ++row)
    launch({"lab rank_by_rank", grid, {kThreads, 1, 1}, 0, stream}, &rank_kernel, p, row);
}

}  // namespace trireme::cuda::lab::rank_order
