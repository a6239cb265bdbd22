// Level 1: the formulas, step by step, with the T x T matrices p and ds in memory.
//
// p = softmax(scale q k^T); ds = p (dp - rowsum(p dp)) with dp = dout v^T; then dv = p^T dout, dk = scale ds^T q, and
// dq = scale ds k. A chain of operations, each with its own gradient, does this. It writes and reads again two matrices
// of T x T floats per head: 1.6 GB for a layer of GPT-2, whose q, k and v are 75 MB. And a thread that takes one key
// reads 64 values of its row while its neighbours read other rows: 32 wavefronts per load.
// Read next: examples/cuda_lab/attention_backward/2_recomputed.cu.
#include "examples/cuda_lab/attention_backward/ladder.h"

namespace trireme::cuda::lab::attention_backward {

namespace {

constexpr int kThreads = 128;

__device__ __forceinline__ float product(const bf16* a, const bf16* b) {
  float sum = 0;
  for (int d = 0; d < kHeadDim; ++d) sum += to_float(a[d]) * to_float(b[d]);
  return sum;
}

/// One block per query, threads over the keys: the query's row of p, and of ds.
__global__ void __launch_bounds__(kThreads) probabilities_kernel(const __grid_constant__ Problem p) {
  TRIREME_SHARED(float, scratch, 32);
  const std::int64_t first = std::int64_t{blockIdx.y} * p.tokens, query = first + blockIdx.x;  // of all heads
  float* const weights = p.probabilities + query * p.tokens;
  float* const ds = p.ds + query * p.tokens;
  const int thread = static_cast<int>(threadIdx.x);
  const int visible = p.causal ? static_cast<int>(blockIdx.x) + 1 : p.tokens;
  float largest = Max::kNeutral, sum = 0, delta = 0;
  for (int key = thread; key < visible; key += kThreads) {
    weights[key] = product(p.q + query * kHeadDim, p.k + (first + key) * kHeadDim) * p.scale;
    largest = Max::join(largest, weights[key]);
  }
  largest = reduce_block<Max>(largest, scratch);
  for (int key = thread; key < visible; key += kThreads) sum += weights[key] = expf(weights[key] - largest);
  sum = reduce_block<Sum>(sum, scratch);
  for (int key = thread; key < visible; key += kThreads) {
    weights[key] /= sum;
    ds[key] = product(p.dout + query * kHeadDim, p.v + (first + key) * kHeadDim);
    delta += weights[key] * ds[key];
  }
  delta = reduce_block<Sum>(delta, scratch);
  for (int key = thread; key < visible; key += kThreads) ds[key] = weights[key] * (ds[key] - delta);
  for (int key = visible + thread; key < p.tokens; key += kThreads) weights[key] = ds[key] = 0;
}

/// One block per key, one thread per column: down the key's columns of p and ds.
__global__ void __launch_bounds__(kHeadDim) keys_kernel(const __grid_constant__ Problem p) {
  const std::int64_t first = std::int64_t{blockIdx.y} * p.tokens, key = blockIdx.x;
  const int column = static_cast<int>(threadIdx.x);
  float dk = 0, dv = 0;
  for (std::int64_t query = first; query < first + p.tokens; ++query) {
    dv += p.probabilities[query * p.tokens + key] * to_float(p.dout[query * kHeadDim + column]);
    dk += p.ds[query * p.tokens + key] * to_float(p.q[query * kHeadDim + column]);
  }
  p.dk[(first + key) * kHeadDim + column] = from_float<bf16>(dk * p.scale);
  p.dv[(first + key) * kHeadDim + column] = from_float<bf16>(dv);
}

/// One block per query, one thread per column.
__global__ void __launch_bounds__(kHeadDim) queries_kernel(const __grid_constant__ Problem p) {
  const std::int64_t first = std::int64_t{blockIdx.y} * p.tokens, query = first + blockIdx.x;
  const int column = static_cast<int>(threadIdx.x);
  float dq = 0;
  for (int key = 0; key < p.tokens; ++key)
    dq += p.ds[query * p.tokens + key] * to_float(p.k[(first + key) * kHeadDim + column]);
  p.dq[query * kHeadDim + column] = from_float<bf16>(dq * p.scale);
}

}  // namespace

void materialised(const Problem& p, Stream stream) {
  const Dim3 grid = {static_cast<unsigned>(p.tokens), static_cast<unsigned>(p.heads), 1};
  launch({"lab backward probabilities", grid, {kThreads, 1, 1}, 0, stream}, &probabilities_kernel, p);
  launch({"lab backward keys", grid, {kHeadDim, 1, 1}, 0, stream}, &keys_kernel, p);
  launch({"lab backward queries", grid, {kHeadDim, 1, 1}, 0, stream}, &queries_kernel, p);
}

}  // namespace trireme::cuda::lab::attention_backward
