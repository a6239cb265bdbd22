// Level 2: the maximum and the sum in one pass.
//
// A thread keeps the largest logit so far, and the sum of exponentials relative to it. A larger one rescales the sum by
// exp(old - new). (Milakov and Gimelshein, Online normalizer calculation for softmax, 2018; fused attention uses the
// same idea.) Pairs of different threads are joined by the same rule. 6 bytes per logit instead of 8, and one launch
// less.
// Read next: examples/cuda_lab/cross_entropy/3_one_launch.cu.
#include "examples/cuda_lab/cross_entropy/ladder.h"

namespace trireme::cuda::lab::cross_entropy {

namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) statistics_kernel(const __grid_constant__ Problem p) {
  TRIREME_SHARED(float, scratch, 32);
  const bf16* const row = p.gradients + std::int64_t{blockIdx.x} * p.rows.columns;
  float maximum = Max::kNeutral, sum = 0;
  for (int c = static_cast<int>(threadIdx.x); c < p.rows.valid; c += kThreads) {
    const float logit = to_float(row[c]), before = maximum;
    maximum = Max::join(maximum, logit);
    sum = sum * expf(before - maximum) + expf(logit - maximum);
  }
  const float row_maximum = reduce_block<Max>(maximum, scratch);
  const float row_sum = reduce_block<Sum>(sum * expf(maximum - row_maximum), scratch);
  if (threadIdx.x != 0) return;
  p.rows.maximum[blockIdx.x] = row_maximum;
  p.rows.sum_exp[blockIdx.x] = row_sum;
  p.losses[blockIdx.x] = loss_of(p, static_cast<int>(blockIdx.x), row_maximum, row_sum);
}

}  // namespace

void two_passes(const Problem& p, Stream stream) {
  launch({"lab statistics", {static_cast<unsigned>(p.rows.rows), 1, 1}, {kThreads, 1, 1}, 0, stream},
         &statistics_kernel, p);
  gradient_pass(p, stream);
}

}  // namespace trireme::cuda::lab::cross_entropy
