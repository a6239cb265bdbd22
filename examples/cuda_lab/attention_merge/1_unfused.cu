// Level 1: three kernels, one for each step of the formula: the factors of each head, out times one of them, and part
// times the other added to it. The last two take one value per thread.
//
// out goes to memory in between: 18 bytes per value, where 10 are needed. And each thread divides to find the row of
// its value, and loads a factor that 63 other values share.
// Read next: examples/cuda_lab/attention_merge/2_thread_per_row.cu.
#include "examples/cuda_lab/attention_merge/ladder.h"

namespace trireme::cuda::lab::attention_merge {

namespace {

__global__ void __launch_bounds__(kThreads) factors_kernel(const __grid_constant__ Problem p) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kThreads + static_cast<int>(threadIdx.x);
  if (row >= p.rows()) return;
  const std::int64_t place = lse_place(p, row);
  const Factors factors = factors_of(p.lse[place], p.part_lse[place]);
  p.kept[row] = factors.kept;
  p.joined[row] = factors.joined;
  p.lse[place] = factors.lse;
}

__global__ void __launch_bounds__(kThreads) scale_kernel(const __grid_constant__ Problem p) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + static_cast<int>(threadIdx.x);
  if (i < p.rows() * p.width) p.out[i] *= p.kept[i / p.width];
}

__global__ void __launch_bounds__(kThreads) add_kernel(const __grid_constant__ Problem p) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + static_cast<int>(threadIdx.x);
  if (i < p.rows() * p.width) p.out[i] += p.joined[i / p.width] * to_float(p.part[i]);
}

Dim3 grid_of(std::int64_t threads) { return {static_cast<unsigned>((threads + kThreads - 1) / kThreads), 1, 1}; }

}  // namespace

void unfused(const Problem& p, Stream stream) {
  launch({"lab merge factors", grid_of(p.rows()), {kThreads, 1, 1}, 0, stream}, &factors_kernel, p);
  launch({"lab merge scale", grid_of(p.rows() * p.width), {kThreads, 1, 1}, 0, stream}, &scale_kernel, p);
  launch({"lab merge add", grid_of(p.rows() * p.width), {kThreads, 1, 1}, 0, stream}, &add_kernel, p);
}

}  // namespace trireme::cuda::lab::attention_merge
