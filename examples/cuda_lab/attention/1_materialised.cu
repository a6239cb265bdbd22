// Level 1: the formula, one kernel a step. Scores, softmax, weighted sum.
//
// The scores are T x T floats a head. They are written once, read and written by the softmax, and read again: 16 T^2
// bytes, while q, k, v and out together are 512 T. At T = 4096 the scores are 64 MiB a head, 128 times the rest.
// Read next: examples/cuda_lab/attention/2_one_pass.cu.
#include "examples/cuda_lab/attention/ladder.h"

namespace trireme::cuda::lab::attention {

namespace {

constexpr int kThreads = 128;

/// One block per query, threads over the keys.
__global__ void __launch_bounds__(kThreads) scores_kernel(const __grid_constant__ Problem p) {
  const std::int64_t query = std::int64_t{blockIdx.y} * p.tokens + blockIdx.x;  // of all heads
  const bf16* const q = p.q + query * kHeadDim;
  for (int key = static_cast<int>(threadIdx.x); key < p.tokens; key += kThreads) {
    const bf16* const k = p.k + (std::int64_t{blockIdx.y} * p.tokens + key) * kHeadDim;
    float sum = 0;
    for (int d = 0; d < kHeadDim; ++d) sum += to_float(q[d]) * to_float(k[d]);
    const bool hidden = p.causal && key > static_cast<int>(blockIdx.x);
    p.scores[query * p.tokens + key] = hidden ? Max::kNeutral : sum * p.scale;
  }
}

/// One block per query: the largest, the sum of exponentials, the quotients.
__global__ void __launch_bounds__(kThreads) softmax_kernel(const __grid_constant__ Problem p) {
  TRIREME_SHARED(float, scratch, 32);
  float* const row = p.scores + (std::int64_t{blockIdx.y} * p.tokens + blockIdx.x) * p.tokens;
  float largest = Max::kNeutral, sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < p.tokens; i += kThreads) largest = Max::join(largest, row[i]);
  largest = reduce_block<Max>(largest, scratch);
  for (int i = static_cast<int>(threadIdx.x); i < p.tokens; i += kThreads) sum += expf(row[i] - largest);
  sum = reduce_block<Sum>(sum, scratch);
  for (int i = static_cast<int>(threadIdx.x); i < p.tokens; i += kThreads) row[i] = expf(row[i] - largest) / sum;
}

/// One block per query, one thread per column of v.
__global__ void __launch_bounds__(kHeadDim) weighted_sum_kernel(const __grid_constant__ Problem p) {
  const std::int64_t query = std::int64_t{blockIdx.y} * p.tokens + blockIdx.x;
  const int column = static_cast<int>(threadIdx.x);
  float sum = 0;
  for (int key = 0; key < p.tokens; ++key)
    sum += p.scores[query * p.tokens + key] *
           to_float(p.v[(std::int64_t{blockIdx.y} * p.tokens + key) * kHeadDim + column]);
  p.out[query * kHeadDim + column] = from_float<bf16>(sum);
}

}  // namespace

void materialised(const Problem& p, Stream stream) {
  const Dim3 grid = {static_cast<unsigned>(p.tokens), static_cast<unsigned>(p.heads), 1};
  launch({"lab scores", grid, {kThreads, 1, 1}, 0, stream}, &scores_kernel, p);
  launch({"lab softmax", grid, {kThreads, 1, 1}, 0, stream}, &softmax_kernel, p);
  launch({"lab weighted_sum", grid, {kHeadDim, 1, 1}, 0, stream}, &weighted_sum_kernel, p);
}

}  // namespace trireme::cuda::lab::attention
