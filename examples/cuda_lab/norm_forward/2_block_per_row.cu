// Level 2: a block takes a row, and adds the residual itself.
//
// Neighbouring threads read neighbouring columns, and sixteen times as many threads work as before. The same kernel
// makes the sum: it writes h once, because later layers need it. But the block then reads h twice more, for the
// variance and for the result. A store bypasses L1, so those reads come from L2: 12 bytes per value, where 8 would be
// enough.
// Read next: examples/cuda_lab/norm_forward/3_read_once.cu.
#include "examples/cuda_lab/norm_forward/ladder.h"

namespace trireme::cuda::lab::norm_forward {

namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) block_per_row_kernel(const __grid_constant__ Problem p) {
  TRIREME_SHARED(float, scratch, 32);
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t at = std::int64_t{blockIdx.x} * p.width;
  const float scale = 1.0F / static_cast<float>(p.width);
  float sum = 0, squares = 0;
  for (int c = thread; c < p.width; c += kThreads) {
    const bf16 h = from_float<bf16>(to_float(p.x[at + c]) + to_float(p.residual[at + c]));
    p.sum[at + c] = h;
    sum += to_float(h);
  }
  const float mean = p.kind == Norm::layer ? reduce_block<Sum>(sum, scratch) * scale : 0.0F;
  for (int c = thread; c < p.width; c += kThreads) {  // a thread reads what it wrote itself: no barrier
    const float difference = to_float(p.sum[at + c]) - mean;
    squares += difference * difference;
  }
  const float rstd = reciprocal_sqrt(reduce_block<Sum>(squares, scratch) * scale + p.eps);
  for (int c = thread; c < p.width; c += kThreads) {
    const float beta = p.beta == nullptr ? 0.0F : to_float(p.beta[c]);
    p.y[at + c] = from_float<bf16>((to_float(p.sum[at + c]) - mean) * rstd * to_float(p.gamma[c]) + beta);
  }
  if (thread != 0) return;
  p.rstd[blockIdx.x] = rstd;
  if (p.kind == Norm::layer) p.mean[blockIdx.x] = mean;
}

}  // namespace

void block_per_row(const Problem& p, Stream stream) {
  launch({"lab block_per_row", {static_cast<unsigned>(p.rows), 1, 1}, {kThreads, 1, 1}, 0, stream},
         &block_per_row_kernel, p);
}

}  // namespace trireme::cuda::lab::norm_forward
