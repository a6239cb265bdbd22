// Attention backward on mma.sync; formulas, bytes and FLOPs: cuda/kernels/attention.h.
//
// Both large kernels keep one pair of tiles in shared memory and stream the other through two stages. A warp owns
// sixteen rows of the resident pair. If that is k and v, the scores are computed transposed, [keys, queries], so that
// their fragments are again the A operand of the next products, dv += p^T dout and dk += ds^T q. If it is q and dout,
// the fragments are the A operand of dq += ds k.
//
// A block of keys takes the heads of its group one after the other, so their sums need no second kernel.
// Read next: tests/cuda/attention_backward_test.cpp, which has the same formulas in a few lines.
#include "cuda/kernels/attention_delta.h"
#include "cuda/kernels/attention_tiles.h"

namespace trireme::cuda {

using namespace attention;

namespace {

/// Rows of a streamed tile. At D = 128 the accumulators leave registers for only 32; two blocks fit a multiprocessor.
template <int D>
constexpr int kStreamed = D <= 64 ? 64 : 32;

/// Two resident tiles, and two stages of two streamed tiles.
template <int D>
constexpr int tile_bytes() {
  return 2 * D * (2 * kRows + 4 * kStreamed<D>);
}

/// What the kernel of keys needs of each query of a streamed tile.
template <int N>
struct RowValues {
  float log2_sum[N], delta[N];  ///< lse in powers of two
  KeyRange visible[N];
};

/// p and ds, transposed, in place of the products k q^T and v dout^T. Rows are keys from `key` on, columns queries;
/// log2_scale makes powers of two of scores.
template <int N>
__device__ __forceinline__ void probabilities_transposed(const RowValues<8 * N>& rows, int key, float log2_scale,
                                                         float (&scores)[N][4], float (&gradients)[N][4]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  TRIREME_UNROLL
  for (int n = 0; n < N; ++n) {
    TRIREME_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int column = 8 * n + lane % 4 * 2 + i % 2;
      const float power = scores[n][i] * log2_scale - rows.log2_sum[column];
      scores[n][i] = rows.visible[column].has(key + lane / 4 + 8 * (i / 2)) ? exp2_fast(power) : 0.0F;
      gradients[n][i] = scores[n][i] * (gradients[n][i] - rows.delta[column]);
    }
  }
}

/// dk and dv of 64 keys.
template <class T, int D>
__global__ void __launch_bounds__(kThreads) keys_kernel(const __grid_constant__ AttentionBackward<T> p) {
  constexpr int kQueries = kStreamed<D>;
  using Keys = SharedTile<T, kRows, D>;
  using Queries = SharedTile<T, kQueries, D>;
  TRIREME_DYNAMIC_SHARED(memory, 128);
  const auto& f = p.forward;
  const int thread = static_cast<int>(threadIdx.x), warp_row = thread / 32 * 16;
  const int kv_head = static_cast<int>(blockIdx.y), group = f.heads / f.kv_heads;
  const std::int64_t batch = blockIdx.z;
  const int first = static_cast<int>(blockIdx.x) * kRows;  // causal: the keys that most queries see start first
  const Keys tile_k{memory}, tile_v{memory + Keys::kBytes};
  std::byte* const stages = memory + 2 * Keys::kBytes;
  auto* const row_values = reinterpret_cast<RowValues<kQueries>*>(memory + tile_bytes<D>());  // [2]
  const auto tile_q = [&](int stage) { return Queries{stages + 2 * stage * Queries::kBytes}; };
  const auto tile_do = [&](int stage) { return Queries{stages + (2 * stage + 1) * Queries::kBytes}; };
  const QueryTiles<T, kQueries, kRows> tiles(p, batch, first);

  const auto copy = [&](int step, int stage) {
    const std::int64_t head = kv_head * group + tiles.member(step), token = batch * f.queries;
    tile_q(stage).template copy_from<true>(f.q + token * f.q_pitch + head * f.head_dim, f.q_pitch, tiles.row(step), 0,
                                           f.queries, f.head_dim, thread, kThreads);
    tile_do(stage).template copy_from<true>(p.dout + token * p.dout_pitch + head * f.head_dim, p.dout_pitch,
                                            tiles.row(step), 0, f.queries, f.head_dim, thread, kThreads);
  };
  // Read while the tiles are on their way, written to shared memory after the products that hide the delay.
  float next_sum = 0, next_delta = 0;
  KeyRange next_visible = {0, 0};
  const auto read_rows = [&](int step) {
    if (thread >= kQueries) return;
    const int row = tiles.row(step) + thread;
    const std::int64_t before = (batch * f.heads + kv_head * group + tiles.member(step)) * f.queries;
    next_sum = row < f.queries ? f.lse[before + row] * kLog2E : 0.0F;
    next_delta = row < f.queries ? p.delta[before + row] : 0.0F;
    next_visible = keys_of(f, batch, row);
  };
  const auto write_rows = [&](int stage) {
    if (thread >= kQueries) return;
    row_values[stage].log2_sum[thread] = next_sum;
    row_values[stage].delta[thread] = next_delta;
    row_values[stage].visible[thread] = next_visible;
  };

  const std::int64_t token = batch * f.keys;
  const T* const k = f.k + token * f.kv_pitch + kv_head * f.head_dim;
  const T* const v = f.v + token * f.kv_pitch + kv_head * f.head_dim;
  tile_k.template copy_from<true>(k, f.kv_pitch, first, 0, f.keys, f.head_dim, thread, kThreads);
  tile_v.template copy_from<true>(v, f.kv_pitch, first, 0, f.keys, f.head_dim, thread, kThreads);
  int step = tiles.visible(0);
  if (step < tiles.steps) {
    copy(step, 0);
    read_rows(step);
    write_rows(0);
  }
  cp_async_commit();

  float dk[D / 8][4] = {}, dv[D / 8][4] = {};
  for (int stage = 0; step < tiles.steps; stage ^= 1) {
    const int next = tiles.visible(step + 1);
    sync_threads();  // all threads are done with the stage that is filled next
    if (next < tiles.steps) {
      copy(next, stage ^ 1);
      read_rows(next);
    }
    cp_async_commit();
    cp_async_wait<1>();
    sync_threads();
    float scores[kQueries / 8][4] = {}, gradients[kQueries / 8][4] = {};  // [16 keys, kQueries]
    multiply_rows<T, D>(tile_k, warp_row, tile_q(stage), scores);
    multiply_rows<T, D>(tile_v, warp_row, tile_do(stage), gradients);
    probabilities_transposed(row_values[stage], first + warp_row, f.scale * kLog2E, scores, gradients);
    accumulate<T, D>(scores, tile_do(stage), dv);
    accumulate<T, D>(gradients, tile_q(stage), dk);
    if (next < tiles.steps) write_rows(stage ^ 1);
    step = next;
  }
  cp_async_wait<0>();
  sync_threads();  // without a step, the copies of other threads may still be on their way

  const std::int64_t to = token * p.dkv_pitch + kv_head * f.head_dim;
  store_rows<T, D>(dk, {f.scale, f.scale}, tile_k, warp_row, p.dk + to, p.dkv_pitch, first, f.keys, f.head_dim);
  store_rows<T, D>(dv, {1, 1}, tile_v, warp_row, p.dv + to, p.dkv_pitch, first, f.keys, f.head_dim);
}

/// dq of 64 queries of one head.
template <class T, int D>
__global__ void __launch_bounds__(kThreads) queries_kernel(const __grid_constant__ AttentionBackward<T> p) {
  constexpr int kKeys = kStreamed<D>;
  using Queries = SharedTile<T, kRows, D>;
  using Keys = SharedTile<T, kKeys, D>;
  TRIREME_DYNAMIC_SHARED(memory, 128);
  const auto& f = p.forward;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp_row = thread / 32 * 16;
  const int head = static_cast<int>(blockIdx.y), kv_head = head / (f.heads / f.kv_heads);
  const std::int64_t batch = blockIdx.z;
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows;  // causal: the longest rows start first
  const T* const k = f.k + batch * f.keys * f.kv_pitch + kv_head * f.head_dim;
  const T* const v = f.v + batch * f.keys * f.kv_pitch + kv_head * f.head_dim;
  const Queries tile_q{memory}, tile_do{memory + Queries::kBytes};
  std::byte* const stages = memory + 2 * Queries::kBytes;
  const auto tile_k = [&](int step) { return Keys{stages + step % 2 * 2 * Keys::kBytes}; };
  const auto tile_v = [&](int step) { return Keys{stages + (step % 2 * 2 + 1) * Keys::kBytes}; };
  const auto copy = [&](int step) {
    tile_k(step).template copy_from<true>(k, f.kv_pitch, step * kKeys, 0, f.keys, f.head_dim, thread, kThreads);
    tile_v(step).template copy_from<true>(v, f.kv_pitch, step * kKeys, 0, f.keys, f.head_dim, thread, kThreads);
  };
  const int begin = first_key_of_rows(f, batch, first) / kKeys, end = (keys_end(f, first) + kKeys - 1) / kKeys;

  const std::int64_t token = batch * f.queries;
  tile_q.template copy_from<true>(f.q + token * f.q_pitch + head * f.head_dim, f.q_pitch, first, 0, f.queries,
                                  f.head_dim, thread, kThreads);
  tile_do.template copy_from<true>(p.dout + token * p.dout_pitch + head * f.head_dim, p.dout_pitch, first, 0, f.queries,
                                   f.head_dim, thread, kThreads);
  if (begin < end) copy(begin);
  cp_async_commit();
  float sum[2], delta[2];
  KeyRange visible[2];
  TRIREME_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int row = first + warp_row + lane / 4 + 8 * half;
    const std::int64_t before = (batch * f.heads + head) * f.queries;
    sum[half] = row < f.queries ? f.lse[before + row] * kLog2E : 0.0F;
    delta[half] = row < f.queries ? p.delta[before + row] : 0.0F;
    visible[half] = keys_of(f, batch, row);
  }

  float dq[D / 8][4] = {};
  for (int step = begin; step < end; ++step) {
    sync_threads();  // all threads are done with the stage that is filled next
    if (step + 1 < end) copy(step + 1);
    cp_async_commit();
    cp_async_wait<1>();
    sync_threads();
    float scores[kKeys / 8][4] = {}, gradients[kKeys / 8][4] = {};  // [16 queries, kKeys]
    multiply_rows<T, D>(tile_q, warp_row, tile_k(step), scores);
    multiply_rows<T, D>(tile_do, warp_row, tile_v(step), gradients);
    TRIREME_UNROLL
    for (int n = 0; n < kKeys / 8; ++n) {
      TRIREME_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int half = i / 2, key = step * kKeys + 8 * n + lane % 4 * 2 + i % 2;
        const float power = scores[n][i] * (f.scale * kLog2E) - sum[half];
        gradients[n][i] = visible[half].has(key) ? exp2_fast(power) * (gradients[n][i] - delta[half]) : 0.0F;
      }
    }
    accumulate<T, D>(gradients, tile_k(step), dq);
  }
  cp_async_wait<0>();
  sync_threads();  // without a step, the copies of other threads may still be on their way
  store_rows<T, D>(dq, {f.scale, f.scale}, tile_q, warp_row, p.dq + token * p.dq_pitch + head * f.head_dim, p.dq_pitch,
                   first, f.queries, f.head_dim);
}

}  // namespace

template <class T>
void attention_backward_sm80(const AttentionBackward<T>& p, Stream stream) {
  require_backward(p, "attention_backward_sm80");
  const auto& f = p.forward;
  if (f.batch == 0) return;
  const auto blocks = [](std::int64_t n, int size) { return static_cast<unsigned>((n + size - 1) / size); };
  const unsigned query_tiles = blocks(f.queries, kRows), key_tiles = blocks(f.keys, kRows);
  const auto batch = static_cast<unsigned>(f.batch);
  attention_delta(p, stream);
  const auto start = [&](auto* keys, auto* queries, std::size_t tiles, std::size_t rows) {
    if (f.keys > 0)
      launch({"attention_backward_sm80 keys",
              {key_tiles, static_cast<unsigned>(f.kv_heads), batch},
              {kThreads, 1, 1},
              tiles + rows,
              stream},
             keys, p);
    if (f.queries > 0)
      launch({"attention_backward_sm80 queries",
              {query_tiles, static_cast<unsigned>(f.heads), batch},
              {kThreads, 1, 1},
              tiles,
              stream},
             queries, p);
  };
  if (f.head_dim <= 64)
    start(&keys_kernel<T, 64>, &queries_kernel<T, 64>, tile_bytes<64>(), 2 * sizeof(RowValues<kStreamed<64>>));
  else
    start(&keys_kernel<T, 128>, &queries_kernel<T, 128>, tile_bytes<128>(), 2 * sizeof(RowValues<kStreamed<128>>));
}

template void attention_backward_sm80(const AttentionBackward<bf16>&, Stream);
template void attention_backward_sm80(const AttentionBackward<f16>&, Stream);

}  // namespace trireme::cuda
