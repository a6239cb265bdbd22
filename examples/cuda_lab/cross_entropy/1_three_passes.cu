// Level 1: the formula, a pass over all logits for each of its parts.
//
// The largest logit of a row, so that no exponential overflows; the sum of exponentials; the gradients. There are three
// launches, and each reads 1.65 GB, thirty times the size of L2: the logits are read three times and written once, 8
// bytes per logit. And each exponential is computed twice.
// Read next: examples/cuda_lab/cross_entropy/2_two_passes.cu.
#include "examples/cuda_lab/cross_entropy/ladder.h"

namespace trireme::cuda::lab::cross_entropy {

namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) maximum_kernel(const __grid_constant__ Problem p) {
  TRIREME_SHARED(float, scratch, 32);
  const bf16* const row = p.gradients + std::int64_t{blockIdx.x} * p.rows.columns;
  float maximum = Max::kNeutral;
  for (int c = static_cast<int>(threadIdx.x); c < p.rows.valid; c += kThreads)
    maximum = Max::join(maximum, to_float(row[c]));
  maximum = reduce_block<Max>(maximum, scratch);
  if (threadIdx.x == 0) p.rows.maximum[blockIdx.x] = maximum;
}

__global__ void __launch_bounds__(kThreads) sum_kernel(const __grid_constant__ Problem p) {
  TRIREME_SHARED(float, scratch, 32);
  const bf16* const row = p.gradients + std::int64_t{blockIdx.x} * p.rows.columns;
  const float maximum = p.rows.maximum[blockIdx.x];
  float sum = 0;
  for (int c = static_cast<int>(threadIdx.x); c < p.rows.valid; c += kThreads) sum += expf(to_float(row[c]) - maximum);
  sum = reduce_block<Sum>(sum, scratch);
  if (threadIdx.x != 0) return;
  p.rows.sum_exp[blockIdx.x] = sum;
  p.losses[blockIdx.x] = loss_of(p, static_cast<int>(blockIdx.x), maximum, sum);
}

__global__ void __launch_bounds__(kThreads) gradient_kernel(const __grid_constant__ Problem p) {
  const int r = static_cast<int>(blockIdx.x);
  bf16* const row = p.gradients + std::int64_t{r} * p.rows.columns;
  for (int c = static_cast<int>(threadIdx.x); c < p.rows.columns; c += kThreads)
    row[c] = from_float<bf16>(gradient_of(p, r, c, to_float(row[c]), p.rows.maximum[r], p.rows.sum_exp[r]));
}

Dim3 grid(const Problem& p) { return {static_cast<unsigned>(p.rows.rows), 1, 1}; }

}  // namespace

void gradient_pass(const Problem& p, Stream stream) {
  launch({"lab gradient", grid(p), {kThreads, 1, 1}, 0, stream}, &gradient_kernel, p);
}

void three_passes(const Problem& p, Stream stream) {
  launch({"lab maximum", grid(p), {kThreads, 1, 1}, 0, stream}, &maximum_kernel, p);
  launch({"lab sum", grid(p), {kThreads, 1, 1}, 0, stream}, &sum_kernel, p);
  gradient_pass(p, stream);
}

}  // namespace trireme::cuda::lab::cross_entropy
