// Level 1: a kernel for the maximum of each row, one for the sum of exponentials, one for the quotient. One block per
// row.
//
// Each pass needs the previous pass's result for the whole row, so the matrix is read from memory three times: 8 bytes
// per value, where 4 are needed. Each exponential is also computed twice.
// Read next: examples/cuda_lab/softmax/2_read_once.cu.
#include <cmath>

#include "examples/cuda_lab/softmax/ladder.h"

namespace trireme::cuda::lab::softmax {

namespace {

__global__ void __launch_bounds__(kThreads) top_kernel(const __grid_constant__ Problem p) {
  TRIREME_SHARED(float, scratch, 32);
  const std::int64_t at = std::int64_t{blockIdx.x} * p.width;
  float top = Max::kNeutral;
  for (int c = static_cast<int>(threadIdx.x); c < p.width; c += kThreads) top = fmaxf(top, to_float(p.x[at + c]));
  top = reduce_block<Max>(top, scratch);
  if (threadIdx.x == 0) p.top[blockIdx.x] = top;
}

__global__ void __launch_bounds__(kThreads) sum_kernel(const __grid_constant__ Problem p) {
  TRIREME_SHARED(float, scratch, 32);
  const std::int64_t at = std::int64_t{blockIdx.x} * p.width;
  const float top = p.top[blockIdx.x];
  float sum = 0;
  for (int c = static_cast<int>(threadIdx.x); c < p.width; c += kThreads) sum += expf(to_float(p.x[at + c]) - top);
  sum = reduce_block<Sum>(sum, scratch);
  if (threadIdx.x == 0) p.sum[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads) quotient_kernel(const __grid_constant__ Problem p) {
  const std::int64_t at = std::int64_t{blockIdx.x} * p.width;
  const float top = p.top[blockIdx.x], scale = 1.0F / p.sum[blockIdx.x];
  for (int c = static_cast<int>(threadIdx.x); c < p.width; c += kThreads)
    p.y[at + c] = from_float<bf16>(expf(to_float(p.x[at + c]) - top) * scale);
}

}  // namespace

void three_passes(const Problem& p, Stream stream) {
  const Dim3 grid = {static_cast<unsigned>(p.rows), 1, 1}, threads = {kThreads, 1, 1};
  launch({"lab top", grid, threads, 0, stream}, &top_kernel, p);
  launch({"lab sum", grid, threads, 0, stream}, &sum_kernel, p);
  launch({"lab quotient", grid, threads, 0, stream}, &quotient_kernel, p);
}

}  // namespace trireme::cuda::lab::softmax
