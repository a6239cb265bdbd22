// Level 1: a kernel for the sum, and then one thread normalises a row.
//
// Rows are independent, so one thread per row is the obvious choice. But the lanes of a warp then read from 32 rows,
// that is, from 32 lines: 32 wavefronts for one load, as in the first level of the matrix product. Each row is read
// three times: for mean, variance and result. And 16,384 rows are only 16,384 threads; an H200 holds 270,000.
//
// The kernel for the sum also costs time: it writes h to memory, and the next kernel reads it again.
// Read next: examples/cuda_lab/norm_forward/2_block_per_row.cu.
#include "examples/cuda_lab/norm_forward/ladder.h"

namespace trireme::cuda::lab::norm_forward {

namespace {

constexpr int kAddThreads = 256, kThreads = 128;

__global__ void __launch_bounds__(kAddThreads) add_kernel(const __grid_constant__ Problem p) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kAddThreads + static_cast<int>(threadIdx.x);
  if (i < std::int64_t{p.rows} * p.width) p.sum[i] = from_float<bf16>(to_float(p.x[i]) + to_float(p.residual[i]));
}

__global__ void __launch_bounds__(kThreads) thread_per_row_kernel(const __grid_constant__ Problem p) {
  const int row = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (row >= p.rows) return;
  const std::int64_t at = std::int64_t{row} * p.width;
  const float scale = 1.0F / static_cast<float>(p.width);
  float mean = 0, squares = 0;
  if (p.kind == Norm::layer) {
    for (int c = 0; c < p.width; ++c) mean += to_float(p.sum[at + c]);
    mean *= scale;
    p.mean[row] = mean;
  }
  for (int c = 0; c < p.width; ++c) {
    const float difference = to_float(p.sum[at + c]) - mean;
    squares += difference * difference;
  }
  const float rstd = reciprocal_sqrt(squares * scale + p.eps);
  p.rstd[row] = rstd;
  for (int c = 0; c < p.width; ++c) {
    const float beta = p.beta == nullptr ? 0.0F : to_float(p.beta[c]);
    p.y[at + c] = from_float<bf16>((to_float(p.sum[at + c]) - mean) * rstd * to_float(p.gamma[c]) + beta);
  }
}

}  // namespace

void thread_per_row(const Problem& p, Stream stream) {
  const std::int64_t values = std::int64_t{p.rows} * p.width;
  const Dim3 add_grid = {static_cast<unsigned>((values + kAddThreads - 1) / kAddThreads), 1, 1};
  const Dim3 grid = {static_cast<unsigned>(p.rows + kThreads - 1) / kThreads, 1, 1};
  launch({"lab add", add_grid, {kAddThreads, 1, 1}, 0, stream}, &add_kernel, p);
  launch({"lab thread_per_row", grid, {kThreads, 1, 1}, 0, stream}, &thread_per_row_kernel, p);
}

}  // namespace trireme::cuda::lab::norm_forward
