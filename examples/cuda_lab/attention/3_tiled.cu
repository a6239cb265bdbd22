// Level 3: 64 queries share each tile of keys and values. (Dao, Fu, Ermon, Rudra, Ré, FlashAttention, 2022.)
//
// A block keeps 64 queries and copies keys and values into shared memory 32 at a time: they are read from L2 once for
// 64 queries, not once for each. The running softmax works tile by tile, so the maximum is updated, and the sums are
// rescaled, 32 times less often. A query has two threads, each with half of its columns; they add their half products
// with one shuffle. Tiles wholly above the diagonal are skipped.
//
// What is left is the arithmetic: all products run on the FMA units, and each operand read serves one product.
// Read next: cuda/kernels/attention_sm80.cu, the kernel in use, and examples/cuda_lab/attention/4_shipped.cpp on what
// it adds.
#include "examples/cuda_lab/attention/ladder.h"

namespace trireme::cuda::lab::attention {

namespace {

constexpr int kQueries = 64, kKeys = 32, kThreads = 2 * kQueries, kHalf = kHeadDim / 2;

/// Keys `start` to start + kKeys - 1 of one head, into shared memory; zeros past the end.
__device__ __forceinline__ void copy_tile(bf16* to, const bf16* from, int start, int tokens) {
  constexpr int kPieces = kHeadDim / 8;
  for (int i = static_cast<int>(threadIdx.x); i < kKeys * kPieces; i += kThreads) {
    const int token = start + i / kPieces;
    const bool inside = token < tokens;
    cp_async_16(to + i * 8, from + (inside ? std::int64_t{token} * kHeadDim + i % kPieces * 8 : 0), inside ? 16 : 0);
  }
}

__global__ void __launch_bounds__(kThreads) tiled_kernel(const __grid_constant__ Problem p) {
  TRIREME_SHARED(bf16, k_tile, kKeys * kHeadDim);
  TRIREME_SHARED(bf16, v_tile, kKeys * kHeadDim);
  const std::int64_t head = std::int64_t{blockIdx.y} * p.tokens * kHeadDim;
  const int first = static_cast<int>(blockIdx.x) * kQueries, query = first + static_cast<int>(threadIdx.x) / 2;
  const int side = static_cast<int>(threadIdx.x % 2) * kHalf;
  const bool mine = query < p.tokens;  // the others still take part in copies and barriers

  float q[kHalf], out[kHalf] = {};
  for (int d = 0; d < kHalf; ++d)
    q[d] = mine ? to_float(p.q[head + std::int64_t{query} * kHeadDim + side + d]) * p.scale : 0.0F;
  float largest = Max::kNeutral, sum = 0;
  const int visible = p.causal ? query + 1 : p.tokens;  // of this query
  const int last = p.causal && first + kQueries < p.tokens ? first + kQueries : p.tokens;
  for (int start = 0; start < last; start += kKeys) {
    copy_tile(k_tile, p.k + head, start, p.tokens);
    copy_tile(v_tile, p.v + head, start, p.tokens);
    cp_async_commit();
    cp_async_wait<0>();
    sync_threads();
    float scores[kKeys], tile_largest = largest;
    TRIREME_UNROLL
    for (int key = 0; key < kKeys; ++key) {
      float half = 0;
      TRIREME_UNROLL
      for (int d = 0; d < kHalf; ++d) half += q[d] * to_float(k_tile[key * kHeadDim + side + d]);
      const float score = half + shuffle_xor(half, 1);
      scores[key] = start + key < visible && start + key < p.tokens ? score : Max::kNeutral;
      tile_largest = Max::join(tile_largest, scores[key]);
    }
    const float keep = expf(largest - tile_largest);
    largest = tile_largest;
    sum *= keep;
    for (float& x : out) x *= keep;
    TRIREME_UNROLL
    for (int key = 0; key < kKeys; ++key) {
      const float weight = scores[key] == Max::kNeutral ? 0.0F : expf(scores[key] - largest);
      sum += weight;
      TRIREME_UNROLL
      for (int d = 0; d < kHalf; ++d) out[d] += weight * to_float(v_tile[key * kHeadDim + side + d]);
    }
    sync_threads();  // the next tile overwrites this one
  }
  if (!mine) return;
  for (int d = 0; d < kHalf; ++d)
    p.out[head + std::int64_t{query} * kHeadDim + side + d] = from_float<bf16>(out[d] / sum);
}

}  // namespace

void tiled(const Problem& p, Stream stream) {
  const Dim3 grid = {static_cast<unsigned>(p.tokens + kQueries - 1) / kQueries, static_cast<unsigned>(p.heads), 1};
  launch({"lab tiled", grid, {kThreads, 1, 1}, 0, stream}, &tiled_kernel, p);
}

}  // namespace trireme::cuda::lab::attention
