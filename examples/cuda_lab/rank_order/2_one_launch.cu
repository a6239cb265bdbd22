// Level 2: one launch, in which a thread loops over the ranks with the sum in a register.
//
// Every value is read once and the sum is written once. A loop fixes the order, so no schedule can change it; a warp's
// threads read neighbours. With one element per thread, a warp's load is 64 bytes, for 12.6 million threads.
// Read next: cuda/kernels/rank_order.cu, the kernel in use, and examples/cuda_lab/rank_order/3_shipped.cpp on what it
// adds.
#include "examples/cuda_lab/rank_order/ladder.h"

namespace trireme::cuda::lab::rank_order {

namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) one_launch_kernel(const __grid_constant__ Problem p) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + static_cast<int>(threadIdx.x);
  if (i >= p.count) return;
  float sum = to_float(p.x[i]);
  for (int row = 1; row < p.rows; ++row) sum += to_float(p.x[row * p.count + i]);
  p.y[i] = from_float<bf16>(sum);
}

}  // namespace

void one_launch(const Problem& p, Stream stream) {
  const Dim3 grid = {static_cast<unsigned>((p.count + kThreads - 1) / kThreads), 1, 1};
  launch({"lab one_launch", grid, {kThreads, 1, 1}, 0, stream}, &one_launch_kernel, p);
}

}  // namespace trireme::cuda::lab::rank_order
