// Level 2: one pass over the keys, no scores in memory.
//
// The softmax seems to need the largest score before the first exponential. The running softmax starts without it: when
// a larger score appears, the sums so far are multiplied by exp(old - new). (Milakov and Gimelshein, Online normalizer
// calculation for softmax, 2018.) One warp per query; a lane holds two of the 64 columns. Keys hidden by the causal
// mask are not visited at all. But each query reads all keys and values separately: 256 T bytes per query.
// Read next: examples/cuda_lab/attention/3_tiled.cu.
#include "examples/cuda_lab/attention/ladder.h"

namespace trireme::cuda::lab::attention {

namespace {

constexpr int kWarps = 4;
using Pair = Pack<bf16, 2>;

__global__ void __launch_bounds__(32 * kWarps) one_pass_kernel(const __grid_constant__ Problem p) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int query = static_cast<int>(blockIdx.x) * kWarps + warp;
  if (query >= p.tokens) return;
  const std::int64_t head = std::int64_t{blockIdx.y} * p.tokens * kHeadDim;
  const auto load = [&](const bf16* from, int token) {
    return load_vector<Pair>(from + head + std::int64_t{token} * kHeadDim + 2 * lane);
  };
  const Pair q = load(p.q, query);
  float largest = Max::kNeutral, sum = 0, out[2] = {};
  const int keys = p.causal ? query + 1 : p.tokens;
  for (int key = 0; key < keys; ++key) {
    const Pair k = load(p.k, key), v = load(p.v, key);
    const float product = to_float(q.values[0]) * to_float(k.values[0]) + to_float(q.values[1]) * to_float(k.values[1]);
    const float score = reduce_warp<Sum>(product) * p.scale;
    const float before = largest;
    largest = Max::join(largest, score);
    const float keep = expf(before - largest), weight = expf(score - largest);
    sum = sum * keep + weight;
    for (int i = 0; i < 2; ++i) out[i] = out[i] * keep + weight * to_float(v.values[i]);
  }
  const Pair result = {{from_float<bf16>(out[0] / sum), from_float<bf16>(out[1] / sum)}};
  store_vector(p.out + head + std::int64_t{query} * kHeadDim + 2 * lane, result);
}

}  // namespace

void one_pass(const Problem& p, Stream stream) {
  const Dim3 grid = {static_cast<unsigned>(p.tokens + kWarps - 1) / kWarps, static_cast<unsigned>(p.heads), 1};
  launch({"lab one_pass", grid, {32 * kWarps, 1, 1}, 0, stream}, &one_pass_kernel, p);
}

}  // namespace trireme::cuda::lab::attention
