// Level 1: a block adds a column.
//
// Its threads read values that lie a row apart, 1536 bytes: each load of a warp touches 32 lines, and of each sector of
// 32 bytes it uses two. Blocks of neighbouring columns read the same sectors; whether L2 still has them is a matter of
// luck. Without L2 hits: 64 bytes per value for h and dy, where the rest of the pass moves 8.
// Read next: examples/cuda_lab/norm_backward/2_thread_per_column.cu.
#include "examples/cuda_lab/norm_backward/ladder.h"

namespace trireme::cuda::lab::norm_backward {

namespace {

constexpr int kThreads = 256;

/// With g = dy gamma and n = (h - mean) rstd:  dx = rstd (g - mean(g) - n mean(g n)) + dsum.
__global__ void __launch_bounds__(kThreads) rows_kernel(const __grid_constant__ Problem p) {
  TRIREME_SHARED(float, scratch, 32);
  const int row = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const std::int64_t at = std::int64_t{row} * p.width;
  const float scale = 1.0F / static_cast<float>(p.width);
  const float mean = p.kind == Norm::layer ? p.mean[row] : 0.0F, rstd = p.rstd[row];
  float sum_g = 0, sum_gn = 0;
  for (int c = thread; c < p.width; c += kThreads) {
    const float g = to_float(p.dy[at + c]) * to_float(p.gamma[c]);
    sum_g += g;
    sum_gn += g * (to_float(p.h[at + c]) - mean) * rstd;
  }
  const float mean_g = p.kind == Norm::layer ? reduce_block<Sum>(sum_g, scratch) * scale : 0.0F;
  const float mean_gn = reduce_block<Sum>(sum_gn, scratch) * scale;
  for (int c = thread; c < p.width; c += kThreads) {
    const float n = (to_float(p.h[at + c]) - mean) * rstd, g = to_float(p.dy[at + c]) * to_float(p.gamma[c]);
    p.dx[at + c] = from_float<bf16>(rstd * (g - mean_g - n * mean_gn) + to_float(p.dsum[at + c]));
  }
}

__global__ void __launch_bounds__(kThreads) block_per_column_kernel(const __grid_constant__ Problem p) {
  TRIREME_SHARED(float, scratch, 32);
  const int column = static_cast<int>(blockIdx.x);
  Terms sum = {};
  for (int row = static_cast<int>(threadIdx.x); row < p.rows; row += kThreads) {
    const Terms terms = terms_of(p, row, column);
    sum.gamma += terms.gamma;
    sum.beta += terms.beta;
  }
  sum = {reduce_block<Sum>(sum.gamma, scratch), reduce_block<Sum>(sum.beta, scratch)};
  if (threadIdx.x == 0) store(p, column, sum);
}

}  // namespace

void rows(const Problem& p, Stream stream) {
  launch({"lab norm_backward rows", {static_cast<unsigned>(p.rows), 1, 1}, {kThreads, 1, 1}, 0, stream}, &rows_kernel,
         p);
}

void block_per_column(const Problem& p, Stream stream) {
  rows(p, stream);
  launch({"lab block_per_column", {static_cast<unsigned>(p.width), 1, 1}, {kThreads, 1, 1}, 0, stream},
         &block_per_column_kernel, p);
}

}  // namespace trireme::cuda::lab::norm_backward
