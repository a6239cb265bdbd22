// Level 1: three kernels for each tensor: scale and clip, update, round. One element per thread.
//
// This is how a framework does it: each line of the optimizer is an operation over a tensor. But each operation writes
// what the next one reads. Scaling reads 2 bytes and writes 4; the update reads 16 and writes 12; rounding reads 4 and
// writes 2: 40 bytes per element, where 28 are needed. And there are 444 launches for 148 tensors.
// Read next: examples/cuda_lab/adamw/2_vectors.cu.
#include "examples/cuda_lab/adamw/ladder.h"

namespace trireme::cuda::lab::adamw {

namespace {

using Tensor = AdamWTensor<bf16>;

__device__ __forceinline__ std::int64_t my_element() {
  return std::int64_t{blockIdx.x} * kThreads + static_cast<int>(threadIdx.x);
}

__global__ void __launch_bounds__(kThreads) scale_kernel(const __grid_constant__ Tensor t, AdamWSettings s,
                                                         float max_norm, const double* norm_squared, float* scaled) {
  const std::int64_t i = my_element();
  const float factor = factor_of(s, max_norm, norm_squared);
  if (i < t.count && factor >= 0) scaled[i] = factor * to_float(t.gradient[i]);
}

__global__ void __launch_bounds__(kThreads)
    update_kernel(const __grid_constant__ Tensor t, AdamWSettings s, float max_norm, const double* norm_squared,
                  const float* scaled) {
  const std::int64_t i = my_element();
  if (i < t.count && factor_of(s, max_norm, norm_squared) >= 0)
    update(t.weight[i], t.m[i], t.v[i], scaled[i], t.decay, s);
}

__global__ void __launch_bounds__(kThreads) round_kernel(const __grid_constant__ Tensor t) {
  const std::int64_t i = my_element();
  if (i < t.count) t.low[i] = from_float<bf16>(t.weight[i]);
}

}  // namespace

void unfused(const Problem& p, Stream stream) {
  for (const Tensor& t : p.tensors) {
    const Dim3 grid = grid_of(t.count, 1), threads = {kThreads, 1, 1};
    launch({"lab scale", grid, threads, 0, stream}, &scale_kernel, t, p.settings, p.max_norm, p.norm_squared, p.scaled);
    launch({"lab update", grid, threads, 0, stream}, &update_kernel, t, p.settings, p.max_norm, p.norm_squared,
           p.scaled);
    launch({"lab round", grid, threads, 0, stream}, &round_kernel, t);
  }
}

}  // namespace trireme::cuda::lab::adamw
