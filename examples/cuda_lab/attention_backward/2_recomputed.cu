// Level 2: no T x T matrix in memory. From one number per query of the forward pass, every p is recomputed.
//
// p = exp(scale q k - lse): with the log-sum-exp known, a probability is one product of 64 and one exponential, and
// needs no other key. The sum over keys in ds needs no other key either, since rowsum(p dp) = dout (p v) = dout out =
// delta. (Dao, Fu, Ermon, Rudra, Ré, FlashAttention, 2022, section 3.1 and appendix B.) So p is recomputed where it is
// needed: along the rows for dq, which is summed over keys, and along the columns for dk and dv, which are summed over
// queries. That is seven products instead of five, but each sum has one writer: no atomics are needed, and every run
// gives the same bits.
//
// A warp takes one query, or one key; a lane holds two of the 64 columns, so that loads are whole lines. The products
// are sums over the warp: ten shuffles per pair of query and key, five times as many as loads. And each query reads all
// keys separately.
// Read next: examples/cuda_lab/attention_backward/3_tiled.cu.
#include "examples/cuda_lab/attention_backward/ladder.h"

namespace trireme::cuda::lab::attention_backward {

namespace {

constexpr int kWarps = 4;

/// Two of the 64 columns of a token.
struct Pair {
  float x, y;
  __device__ static Pair of(const bf16* from, std::int64_t token) {
    const auto pack = load_vector<Pack<bf16, 2>>(from + token * kHeadDim + threadIdx.x % 32 * 2);
    return {to_float(pack.values[0]), to_float(pack.values[1])};
  }
  __device__ void add(float factor, const Pair& other) {
    x += factor * other.x;
    y += factor * other.y;
  }
  __device__ void store(bf16* to, std::int64_t token, float factor) const {
    const Pack<bf16, 2> pack = {{from_float<bf16>(x * factor), from_float<bf16>(y * factor)}};
    store_vector(to + token * kHeadDim + threadIdx.x % 32 * 2, pack);
  }
};

/// Of whole tokens: the same in every lane.
__device__ __forceinline__ float product(const Pair& a, const Pair& b) {
  return reduce_warp<Sum>(a.x * b.x + a.y * b.y);
}

/// One warp per query: delta, and dq over the keys it sees.
__global__ void __launch_bounds__(32 * kWarps) rows_kernel(const __grid_constant__ Problem p) {
  const int row = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x / 32);
  if (row >= p.tokens) return;
  const std::int64_t first = std::int64_t{blockIdx.y} * p.tokens, query = first + row;
  const Pair q = Pair::of(p.q, query), dout = Pair::of(p.dout, query);
  const float lse = p.lse[query], delta = product(dout, Pair::of(p.out, query));
  if (threadIdx.x % 32 == 0) p.delta[query] = delta;
  Pair dq = {};
  const std::int64_t end = p.causal ? query + 1 : first + p.tokens;
  for (std::int64_t key = first; key < end; ++key) {
    const Pair k = Pair::of(p.k, key);
    const float weight = expf(product(q, k) * p.scale - lse);
    dq.add(weight * (product(dout, Pair::of(p.v, key)) - delta), k);
  }
  dq.store(p.dq, query, p.scale);
}

/// One warp per key: dk and dv over the queries that see it.
__global__ void __launch_bounds__(32 * kWarps) columns_kernel(const __grid_constant__ Problem p) {
  const int column = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x / 32);
  if (column >= p.tokens) return;
  const std::int64_t first = std::int64_t{blockIdx.y} * p.tokens, key = first + column;
  const Pair k = Pair::of(p.k, key), v = Pair::of(p.v, key);
  Pair dk = {}, dv = {};
  for (std::int64_t query = p.causal ? key : first; query < first + p.tokens; ++query) {
    const Pair q = Pair::of(p.q, query), dout = Pair::of(p.dout, query);
    const float weight = expf(product(q, k) * p.scale - p.lse[query]);
    dv.add(weight, dout);
    dk.add(weight * (product(dout, v) - p.delta[query]), q);
  }
  dk.store(p.dk, key, p.scale);
  dv.store(p.dv, key, 1);
}

}  // namespace

void recomputed(const Problem& p, Stream stream) {
  const Dim3 grid = {static_cast<unsigned>(p.tokens + kWarps - 1) / kWarps, static_cast<unsigned>(p.heads), 1};
  launch({"lab backward rows", grid, {32 * kWarps, 1, 1}, 0, stream}, &rows_kernel, p);
  launch({"lab backward columns", grid, {32 * kWarps, 1, 1}, 0, stream}, &columns_kernel, p);
}

}  // namespace trireme::cuda::lab::attention_backward
