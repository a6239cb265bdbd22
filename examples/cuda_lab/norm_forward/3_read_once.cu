// Level 3: the row stays in shared memory, in f32.
//
// x and residual are read once, h and y written once: 8 bytes per value, which cannot be less. A thread later reads
// only the columns that it wrote itself, so the only barriers are those of the two sums. (A sum of squares in the same
// pass as the mean would also give the variance and save one of these. But mean square minus squared mean cancels if a
// row lies far from zero, and then f32 has no digits left.)
//
// What is left: a load has 2 bytes, so a thread needs six loads for a row of 768, and waits for each.
// Read next: cuda/kernels/norm.cu, the kernel in use, and examples/cuda_lab/norm_forward/4_shipped.cpp on what it adds.
#include "examples/cuda_lab/norm_forward/ladder.h"

namespace trireme::cuda::lab::norm_forward {

namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) read_once_kernel(const __grid_constant__ Problem p) {
  TRIREME_DYNAMIC_SHARED(memory, 16);
  TRIREME_SHARED(float, scratch, 32);
  float* const row = reinterpret_cast<float*>(memory);  // [width]
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t at = std::int64_t{blockIdx.x} * p.width;
  const float scale = 1.0F / static_cast<float>(p.width);
  float sum = 0, squares = 0;
  for (int c = thread; c < p.width; c += kThreads) {
    const bf16 h = from_float<bf16>(to_float(p.x[at + c]) + to_float(p.residual[at + c]));
    p.sum[at + c] = h;
    sum += row[c] = to_float(h);
  }
  const float mean = p.kind == Norm::layer ? reduce_block<Sum>(sum, scratch) * scale : 0.0F;
  for (int c = thread; c < p.width; c += kThreads) squares += (row[c] - mean) * (row[c] - mean);
  const float rstd = reciprocal_sqrt(reduce_block<Sum>(squares, scratch) * scale + p.eps);
  for (int c = thread; c < p.width; c += kThreads) {
    const float beta = p.beta == nullptr ? 0.0F : to_float(p.beta[c]);
    p.y[at + c] = from_float<bf16>((row[c] - mean) * rstd * to_float(p.gamma[c]) + beta);
  }
  if (thread != 0) return;
  p.rstd[blockIdx.x] = rstd;
  if (p.kind == Norm::layer) p.mean[blockIdx.x] = mean;
}

}  // namespace

void read_once(const Problem& p, Stream stream) {
  launch({"lab read_once",
          {static_cast<unsigned>(p.rows), 1, 1},
          {kThreads, 1, 1},
          static_cast<std::size_t>(p.width) * sizeof(float),
          stream},
         &read_once_kernel, p);
}

}  // namespace trireme::cuda::lab::norm_forward
