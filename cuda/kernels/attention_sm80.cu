// Attention forward on mma.sync; formulas, bytes and FLOPs: cuda/kernels/attention.h.
//
// A block has 64 queries of one head, sixteen for each of four warps, whose q stays in registers. Keys and values
// stream, 64 at a time, through two stages of shared memory: copies of the next 64 overlap with the products of these.
// A warp holds scores [16, 64] and output [16, D] in f32; the fragments of the scores, rounded, are the A operand of
// the second product.
// Read next: cuda/kernels/attention_backward_sm80.cu.
#include "cuda/kernels/attention_tiles.h"

namespace trireme::cuda {

using namespace attention;

namespace {

/// What a thread keeps of its two rows (lane / 4, and 8 further down): the running maximum, in powers of two, the sum
/// of exponentials over its own columns, and the output.
template <int D>
struct Running {
  float maximum[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0, 0};
  float out[D / 8][4] = {};
};

/// Turns scores into exponentials, and rescales the sums made with the old maximum.
template <int D>
__device__ __forceinline__ void softmax_step(float (&scores)[kRows / 8][4], Running<D>& running) {
  TRIREME_UNROLL
  for (int half = 0; half < 2; ++half) {
    float largest = running.maximum[half];
    TRIREME_UNROLL
    for (auto& score : scores) largest = Max::join(largest, Max::join(score[2 * half], score[2 * half + 1]));
    largest = Max::join(largest, shuffle_xor(largest, 1));
    largest = Max::join(largest, shuffle_xor(largest, 2));
    const float base = largest == -INFINITY ? 0.0F : largest;  // no key seen yet: every exponential is 0
    const float rescale = exp2_fast(running.maximum[half] - base);
    running.maximum[half] = largest;
    running.sum[half] *= rescale;
    TRIREME_UNROLL
    for (auto& out : running.out) {
      out[2 * half] *= rescale;
      out[2 * half + 1] *= rescale;
    }
    TRIREME_UNROLL
    for (auto& score : scores) {
      for (int i = 2 * half; i < 2 * half + 2; ++i) running.sum[half] += score[i] = exp2_fast(score[i] - base);
    }
  }
}

template <class T, int D>
__global__ void __launch_bounds__(kThreads) forward_kernel(const __grid_constant__ AttentionForward<T> p) {
  using Tile = SharedTile<T, kRows, D>;
  TRIREME_DYNAMIC_SHARED(memory, 128);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp_row = thread / 32 * 16;
  const int head = static_cast<int>(blockIdx.y), kv_head = head / (p.heads / p.kv_heads);
  const std::int64_t batch = blockIdx.z;
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows;  // causal: the longest rows start first
  const T* const q = p.q + batch * p.queries * p.q_pitch + head * p.head_dim;
  const T* const k = p.k + batch * p.keys * p.kv_pitch + kv_head * p.head_dim;
  const T* const v = p.v + batch * p.keys * p.kv_pitch + kv_head * p.head_dim;
  const Tile tile_q{memory};
  const auto tile_k = [&](int step) { return Tile{memory + (1 + step % 2 * 2) * Tile::kBytes}; };
  const auto tile_v = [&](int step) { return Tile{memory + (2 + step % 2 * 2) * Tile::kBytes}; };
  const auto copy = [&](int step) {
    tile_k(step).template copy_from<true>(k, p.kv_pitch, step * kRows, 0, p.keys, p.head_dim, thread, kThreads);
    tile_v(step).template copy_from<true>(v, p.kv_pitch, step * kRows, 0, p.keys, p.head_dim, thread, kThreads);
  };
  const int begin = first_key_of_rows(p, batch, first) / kRows, end = (keys_end(p, first) + kRows - 1) / kRows;

  tile_q.template copy_from<true>(q, p.q_pitch, first, 0, p.queries, p.head_dim, thread, kThreads);
  cp_async_commit();
  if (begin < end) copy(begin);
  cp_async_commit();
  cp_async_wait<1>();
  sync_threads();
  std::uint32_t fragment_q[D / 16][4];
  TRIREME_UNROLL
  for (int d = 0; d < D / 16; ++d) tile_q.load(fragment_q[d], warp_row, 16 * d);

  KeyRange visible[2];
  TRIREME_UNROLL
  for (int half = 0; half < 2; ++half) visible[half] = keys_of(p, batch, first + warp_row + lane / 4 + 8 * half);

  Running<D> running;
  for (int step = begin; step < end; ++step) {
    sync_threads();  // all threads are done with the stage that is filled next
    if (step + 1 < end) copy(step + 1);
    cp_async_commit();
    cp_async_wait<1>();
    sync_threads();
    float scores[kRows / 8][4] = {};
    TRIREME_UNROLL
    for (int d = 0; d < D / 16; ++d) {
      TRIREME_UNROLL
      for (int n = 0; n < kRows / 16; ++n) {
        std::uint32_t b[4];
        tile_k(step).load_pair(b, 16 * n, 16 * d);
        mma_m16n8k16<T>(scores[2 * n], fragment_q[d], b);
        mma_m16n8k16<T>(scores[2 * n + 1], fragment_q[d], b + 2);
      }
    }
    TRIREME_UNROLL
    for (int n = 0; n < kRows / 8; ++n) {
      TRIREME_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int key = step * kRows + 8 * n + lane % 4 * 2 + i % 2;
        scores[n][i] = visible[i / 2].has(key) ? scores[n][i] * (p.scale * kLog2E) : -INFINITY;
      }
    }
    softmax_step(scores, running);
    accumulate<T, D>(scores, tile_v(step), running.out);
  }
  cp_async_wait<0>();

  float inverse[2];
  TRIREME_UNROLL
  for (int half = 0; half < 2; ++half) {
    float sum = running.sum[half];
    sum += shuffle_xor(sum, 1);
    sum += shuffle_xor(sum, 2);
    inverse[half] = sum > 0 ? 1.0F / sum : 0.0F;
    const int row = first + warp_row + lane / 4 + 8 * half;
    if (lane % 4 == 0 && row < p.queries)
      p.lse[(batch * p.heads + head) * p.queries + row] =
          sum > 0 ? running.maximum[half] * kLn2 + logf(sum) : -INFINITY;
  }
  T* const out = p.out + batch * p.queries * p.out_pitch + head * p.head_dim;
  store_rows<T, D>(running.out, inverse, tile_q, warp_row, out, p.out_pitch, first, p.queries, p.head_dim);
}

template <class T>
void check(const AttentionForward<T>& p) {
  constexpr const char* where = "attention_sm80";
  require_shape(p, where);
  require(
      aligned(p.q, p.q_pitch) && aligned(p.k, p.kv_pitch) && aligned(p.v, p.kv_pitch) && aligned(p.out, p.out_pitch),
      where, "q, k, v and out must begin at multiples of 16 bytes, with pitches that are multiples of 8 elements");
}

}  // namespace

template <class T>
void attention_forward_sm80(const AttentionForward<T>& p, Stream stream) {
  check(p);
  if (p.queries == 0 || p.batch == 0) return;
  const auto start = [&](auto* kernel, int head_dim) {
    const Dim3 grid = {static_cast<unsigned>((p.queries + kRows - 1) / kRows), static_cast<unsigned>(p.heads),
                       static_cast<unsigned>(p.batch)};
    const auto bytes = static_cast<std::size_t>(5 * kRows * 2) * static_cast<std::size_t>(head_dim);
    launch({"attention_sm80", grid, {kThreads, 1, 1}, bytes, stream}, kernel, p);
  };
  if (p.head_dim <= 64)
    start(&forward_kernel<T, 64>, 64);
  else
    start(&forward_kernel<T, 128>, 128);
}

template void attention_forward_sm80(const AttentionForward<bf16>&, Stream);
template void attention_forward_sm80(const AttentionForward<f16>&, Stream);

}  // namespace trireme::cuda
