// Level 3: 64 queries share the streamed keys and values, and 64 keys share the streamed queries.
//
// A block keeps 64 tokens in registers, with two threads per token that have half of its columns each, and copies the
// tokens of the other side into shared memory 32 at a time. These are read from L2 once for 64 tokens instead of four.
// A product takes 32 multiplications per thread and one shuffle, instead of one and five.
//
// Both kernels have this loop. For dq, queries stay and keys stream; for dk and dv, keys stay and queries stream, with
// their lse and delta. (The first kernel leaves delta for the second.)
//
// What is left is the arithmetic: 3.5 clocks of the FMA units for each pair of query and key, while the tensor cores
// are idle.
// Read next: cuda/kernels/attention_backward_sm80.cu, and examples/cuda_lab/attention_backward/4_shipped.cpp on what it
// adds.
#include "examples/cuda_lab/attention_backward/ladder.h"

namespace trireme::cuda::lab::attention_backward {

namespace {

constexpr int kStay = 64, kPass = 32, kThreads = 2 * kStay, kHalf = kHeadDim / 2;
using Eight = Pack<bf16, 8>;

/// Half of a token's columns in registers.
__device__ __forceinline__ void load_half(const bf16* from, std::int64_t token, int side, float (&to)[kHalf]) {
  TRIREME_UNROLL
  for (int d = 0; d < kHalf; ++d) to[d] = to_float(from[token * kHeadDim + side + d]);
}

/// Tokens from `start` on into shared memory; zeros past the end.
__device__ __forceinline__ void copy_tile(bf16* to, const bf16* from, int start, int tokens) {
  constexpr int kPieces = kHeadDim / 8;
  for (int i = static_cast<int>(threadIdx.x); i < kPass * kPieces; i += kThreads) {
    const int token = start + i / kPieces;
    const bool inside = token < tokens;
    cp_async_16(to + i * 8, from + (inside ? std::int64_t{token} * kHeadDim + i % kPieces * 8 : 0), inside ? 16 : 0);
  }
}

/// Of whole tokens, by the two threads that share one.
__device__ __forceinline__ float product(const float (&mine)[kHalf], const bf16* other) {
  float sum = 0;
  TRIREME_UNROLL
  for (int d = 0; d < kHalf; d += 8) {
    const auto piece = load_vector<Eight>(other + d);
    TRIREME_UNROLL
    for (int i = 0; i < 8; ++i) sum += mine[d + i] * to_float(piece.values[i]);
  }
  return sum + shuffle_xor(sum, 1);
}
__device__ __forceinline__ void add(float (&sums)[kHalf], float factor, const bf16* other) {
  TRIREME_UNROLL
  for (int d = 0; d < kHalf; d += 8) {
    const auto piece = load_vector<Eight>(other + d);
    TRIREME_UNROLL
    for (int i = 0; i < 8; ++i) sums[d + i] += factor * to_float(piece.values[i]);
  }
}
__device__ __forceinline__ void store_half(bf16* to, std::int64_t token, int side, const float (&sums)[kHalf],
                                           float factor) {
  for (int d = 0; d < kHalf; ++d) to[token * kHeadDim + side + d] = from_float<bf16>(sums[d] * factor);
}

/// OfKeys: keys stay, for dk and dv. Otherwise queries stay, for dq.
template <bool OfKeys>
__global__ void __launch_bounds__(kThreads) tiled_kernel(const __grid_constant__ Problem p) {
  TRIREME_SHARED(bf16, a_tile, kPass * kHeadDim);  // k or q
  TRIREME_SHARED(bf16, b_tile, kPass * kHeadDim);  // v or dout
  TRIREME_SHARED(float, lse, kPass);
  TRIREME_SHARED(float, delta, kPass);
  const int thread = static_cast<int>(threadIdx.x), side = thread % 2 * kHalf;
  const std::int64_t head = std::int64_t{blockIdx.y} * p.tokens;
  const int first = static_cast<int>(blockIdx.x) * kStay, mine = first + thread / 2;
  const bool exists = mine < p.tokens;  // other threads repeat the first token's work without storing
  const std::int64_t own = head + (exists ? mine : first);
  float a[kHalf], b[kHalf], a_sums[kHalf] = {}, b_sums[kHalf] = {};
  load_half(OfKeys ? p.k : p.q, own, side, a);
  load_half(OfKeys ? p.v : p.dout, own, side, b);
  const float my_lse = OfKeys ? 0.0F : p.lse[own];
  const float my_delta = OfKeys ? 0.0F : product(b, p.out + own * kHeadDim + side);
  if (!OfKeys && exists && side == 0) p.delta[own] = my_delta;
  // Causal: queries see keys up to themselves.
  const int begin = OfKeys && p.causal ? first / kPass * kPass : 0;
  const int end = !OfKeys && p.causal && first + kStay < p.tokens ? first + kStay : p.tokens;
  for (int start = begin; start < end; start += kPass) {
    copy_tile(a_tile, (OfKeys ? p.q : p.k) + head * kHeadDim, start, p.tokens);
    copy_tile(b_tile, (OfKeys ? p.dout : p.v) + head * kHeadDim, start, p.tokens);
    cp_async_commit();
    if (OfKeys && thread < kPass && start + thread < p.tokens) {
      lse[thread] = p.lse[head + start + thread];
      delta[thread] = p.delta[head + start + thread];
    }
    cp_async_wait<0>();
    sync_threads();
    const int passing = p.tokens - start < kPass ? p.tokens - start : kPass;
    for (int i = 0; i < passing; ++i) {
      const bf16* const other_a = a_tile + i * kHeadDim + side;
      const bf16* const other_b = b_tile + i * kHeadDim + side;
      const float score = product(a, other_a) * p.scale, gradient = product(b, other_b);
      const bool seen = !p.causal || (OfKeys ? start + i >= mine : start + i <= mine);
      const float weight = seen ? expf(score - (OfKeys ? lse[i] : my_lse)) : 0.0F;
      add(a_sums, weight * (gradient - (OfKeys ? delta[i] : my_delta)), other_a);
      if (OfKeys) add(b_sums, weight, other_b);
    }
    sync_threads();  // the next tile overwrites this one
  }
  if (!exists) return;
  store_half(OfKeys ? p.dk : p.dq, own, side, a_sums, p.scale);
  if (OfKeys) store_half(p.dv, own, side, b_sums, 1);
}

}  // namespace

void tiled(const Problem& p, Stream stream) {
  const Dim3 grid = {static_cast<unsigned>(p.tokens + kStay - 1) / kStay, static_cast<unsigned>(p.heads), 1};
  launch({"lab backward tiled queries", grid, {kThreads, 1, 1}, 0, stream}, &tiled_kernel<false>, p);
  launch({"lab backward tiled keys", grid, {kThreads, 1, 1}, 0, stream}, &tiled_kernel<true>, p);
}

}  // namespace trireme::cuda::lab::attention_backward
