// Attention in f32, forward and backward, without tensor cores; formulas, bytes and FLOPs: cuda/kernels/attention.h.
//
// A block owns some rows and streams tiles of 32 others. Its threads form 16 lines of 8: thread (line, across) has the
// scores of rows line + 16 i with streamed rows across + 8 j, and of the results the same rows, columns 4 across + 32
// c. So a row belongs to eight neighbouring lanes. A sum over it takes three shuffles, and its weights, which other
// lanes need in the second product, go through shared memory within one warp.
//
// As in attention_backward_sm80.cu, one kernel makes dk and dv and another dq: no sum depends on the schedule.
// Read next: tests/cuda/attention_f32_test.cpp, which has the same formulas in a few lines.
#include "core/error.h"
#include "cuda/kernels/attention.h"
#include "cuda/kernels/attention_tiles.h"
#include "cuda/kernels/pieces.h"

namespace trireme::cuda {

using attention::KeyRange;
using attention::keys_of;
using attention::kLn2;
using attention::kLog2E;

namespace {

constexpr int kThreads = 128, kLines = 16, kAcross = 8, kStreamed = 32;
using Four = Pack<float, 4>;
using Forward = AttentionForward<float>;
using Backward = AttentionBackward<float>;

struct Place {
  int line, across;
  __device__ __forceinline__ Place()
      : line(static_cast<int>(threadIdx.x) / kAcross), across(static_cast<int>(threadIdx.x) % kAcross) {}
};

/// [Rows, D] in shared memory. Four extra floats per row put the rows of neighbouring threads into different banks.
template <int Rows, int D>
struct Tile {
  static constexpr int kPitch = D + 4, kBytes = Rows * kPitch * 4;
  float* data;
  __device__ explicit Tile(std::byte* memory) : data(reinterpret_cast<float*>(memory)) {}
  __device__ __forceinline__ float* row(int r) const { return data + r * kPitch; }
  __device__ __forceinline__ Four four(int r, int column) const { return load_vector<Four>(row(r) + column); }

  /// Call in the whole block; zeros outside [rows, columns].
  __device__ __forceinline__ void copy_from(const float* from, std::int64_t pitch, int first, int rows,
                                            int columns) const {
    for (int i = static_cast<int>(threadIdx.x); i < Rows * (D / 4); i += kThreads) {
      const int r = i / (D / 4), c = i % (D / 4) * 4, left = first + r < rows ? columns - c : 0;
      store_vector(row(r) + c, load_piece<4>(from + (first + r) * pitch + c, left));
    }
  }
};

/// The weights of R rows for each line of threads, over one streamed tile.
template <int R>
using Weights = Tile<R * kLines, kStreamed>;

/// scores [R, 4] = rows line + 16 i of `own` times rows across + 8 j of `streamed`, over `columns` columns.
template <int R, class Own, class Streamed>
__device__ __forceinline__ void multiply(const Own& own, const Streamed& streamed, int columns, float (&scores)[R][4]) {
  const Place at;
  TRIREME_UNROLL
  for (int i = 0; i < R; ++i) {
    TRIREME_UNROLL
    for (int j = 0; j < 4; ++j) scores[i][j] = 0;
  }
  for (int d = 0; d < columns; d += 4) {
    Four x[R], y[4];
    TRIREME_UNROLL
    for (int i = 0; i < R; ++i) x[i] = own.four(at.line + kLines * i, d);
    TRIREME_UNROLL
    for (int j = 0; j < 4; ++j) y[j] = streamed.four(at.across + kAcross * j, d);
    TRIREME_UNROLL
    for (int i = 0; i < R; ++i) {
      TRIREME_UNROLL
      for (int j = 0; j < 4; ++j) {
        TRIREME_UNROLL
        for (int e = 0; e < 4; ++e) scores[i][j] += x[i].values[e] * y[j].values[e];
      }
    }
  }
}

/// sums [R, D / 8] += weights [R, 32] times `streamed` [32, D]. The weights go through `scratch`, each warp its own
/// rows.
template <int R, int D>
__device__ __forceinline__ void accumulate(const float (&weights)[R][4], const Weights<R>& scratch,
                                           const Tile<kStreamed, D>& streamed, Four (&sums)[R][D / 32]) {
  const Place at;
  sync_warp();  // the warp has read its previous weights
  TRIREME_UNROLL
  for (int i = 0; i < R; ++i) {
    TRIREME_UNROLL
    for (int j = 0; j < 4; ++j) scratch.row(at.line + kLines * i)[at.across + kAcross * j] = weights[i][j];
  }
  sync_warp();
  for (int key = 0; key < kStreamed; key += 4) {
    Four w[R];
    TRIREME_UNROLL
    for (int i = 0; i < R; ++i) w[i] = scratch.four(at.line + kLines * i, key);
    TRIREME_UNROLL
    for (int e = 0; e < 4; ++e) {
      TRIREME_UNROLL
      for (int c = 0; c < D / 32; ++c) {
        const Four values = streamed.four(key + e, 4 * at.across + 32 * c);
        TRIREME_UNROLL
        for (int i = 0; i < R; ++i) {
          TRIREME_UNROLL
          for (int f = 0; f < 4; ++f) sums[i][c].values[f] += w[i].values[e] * values.values[f];
        }
      }
    }
  }
}

/// to[first + row] = factor[i] sums, for the rows and columns that exist.
template <int R, int D>
__device__ __forceinline__ void store(const Four (&sums)[R][D / 32], const float (&factor)[R], float* to,
                                      std::int64_t pitch, int first, int rows, int columns) {
  const Place at;
  TRIREME_UNROLL
  for (int i = 0; i < R; ++i) {
    const int row = first + at.line + kLines * i;
    TRIREME_UNROLL
    for (int c = 0; c < D / 32; ++c) {
      const int column = 4 * at.across + 32 * c, left = row < rows ? columns - column : 0;
      Four result;
      TRIREME_UNROLL
      for (int f = 0; f < 4; ++f) result.values[f] = factor[i] * sums[i][c].values[f];
      store_piece<4>(to + row * pitch + column, result, left);
    }
  }
}

/// The tiles of kStreamed keys, `begin` to `end`, that any of `rows` queries from `row` on may see.
struct KeyTiles {
  int begin, end;
  __device__ __forceinline__ KeyTiles(const Forward& p, std::int64_t batch, int row, int rows) {
    int least = p.first_key == nullptr ? 0 : p.keys, last = 0;
    for (int i = row + static_cast<int>(threadIdx.x % 32); i < row + rows; i += 32) {
      const KeyRange range = keys_of(p, batch, i);
      if (range.count == 0) continue;
      least = range.begin < least ? range.begin : least;
      const int stop = range.begin + static_cast<int>(range.count);
      last = stop > last ? stop : last;
    }
    TRIREME_UNROLL
    for (int bits = 16; bits > 0; bits /= 2) {
      const int other = shuffle_xor(least, bits), other_last = shuffle_xor(last, bits);
      least = other < least ? other : least;
      last = other_last > last ? other_last : last;
    }
    begin = least / kStreamed;
    end = (last + kStreamed - 1) / kStreamed;
  }
};

__host__ __device__ constexpr int up_to_four(int n) { return (n + 3) / 4 * 4; }

// ---- forward --------------------------------------------------------------------------------------------------------

constexpr int kForwardRows = 4;  ///< of a thread

template <int D>
constexpr int forward_bytes() {
  return Tile<kForwardRows * kLines, D>::kBytes + 2 * Tile<kStreamed, D>::kBytes + Weights<kForwardRows>::kBytes;
}

/// The running softmax of a query; `sum` is this thread's part. Scores are in powers of two.
struct Running {
  float maximum = -INFINITY, sum = 0;
};

/// Turns a row's scores into weights; returns the factor by which the sums so far must be multiplied.
__device__ __forceinline__ float softmax_step(float (&scores)[4], Running& running) {
  float maximum = running.maximum;
  TRIREME_UNROLL
  for (const float score : scores) maximum = score > maximum ? score : maximum;
  TRIREME_UNROLL
  for (int bits = 1; bits < kAcross; bits *= 2) {
    const float other = shuffle_xor(maximum, bits);
    maximum = other > maximum ? other : maximum;
  }
  const float reference = maximum == -INFINITY ? 0.0F : maximum;  // no key yet: all weights are 0
  const float correction = exp2_fast(running.maximum - reference);
  running.maximum = maximum;
  running.sum *= correction;
  TRIREME_UNROLL
  for (float& score : scores) {
    score = exp2_fast(score - reference);
    running.sum += score;
  }
  return correction;
}

template <int D>
__global__ void __launch_bounds__(kThreads) forward_f32_kernel(const __grid_constant__ Forward p) {
  constexpr int R = kForwardRows, kRows = R * kLines;
  TRIREME_DYNAMIC_SHARED(memory, 16);
  const Tile<kRows, D> tile_q(memory);
  const Tile<kStreamed, D> tile_k(memory + tile_q.kBytes), tile_v(memory + tile_q.kBytes + tile_k.kBytes);
  const Weights<R> scratch(memory + tile_q.kBytes + 2 * tile_k.kBytes);
  const Place at;
  const int head = static_cast<int>(blockIdx.y), kv_head = head / (p.heads / p.kv_heads);
  const std::int64_t batch = blockIdx.z;
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows;  // causal: the longest rows start first
  const float* const k = p.k + batch * p.keys * p.kv_pitch + kv_head * p.head_dim;
  const float* const v = p.v + batch * p.keys * p.kv_pitch + kv_head * p.head_dim;
  tile_q.copy_from(p.q + batch * p.queries * p.q_pitch + head * p.head_dim, p.q_pitch, first, p.queries, p.head_dim);
  KeyRange visible[R];
  TRIREME_UNROLL
  for (int i = 0; i < R; ++i) visible[i] = keys_of(p, batch, first + at.line + kLines * i);

  Running running[R];
  Four sums[R][D / 32] = {};
  const KeyTiles tiles(p, batch, first, kRows);
  for (int step = tiles.begin; step < tiles.end; ++step) {
    sync_threads();  // all threads are done with the previous tiles
    tile_k.copy_from(k, p.kv_pitch, step * kStreamed, p.keys, p.head_dim);
    tile_v.copy_from(v, p.kv_pitch, step * kStreamed, p.keys, p.head_dim);
    sync_threads();
    float scores[R][4];
    multiply(tile_q, tile_k, up_to_four(p.head_dim), scores);
    TRIREME_UNROLL
    for (int i = 0; i < R; ++i) {
      TRIREME_UNROLL
      for (int j = 0; j < 4; ++j)
        scores[i][j] =
            visible[i].has(step * kStreamed + at.across + kAcross * j) ? scores[i][j] * (p.scale * kLog2E) : -INFINITY;
      const float correction = softmax_step(scores[i], running[i]);
      TRIREME_UNROLL
      for (int c = 0; c < D / 32; ++c) {
        TRIREME_UNROLL
        for (float& value : sums[i][c].values) value *= correction;
      }
    }
    accumulate<R, D>(scores, scratch, tile_v, sums);
  }

  float inverse[R];
  TRIREME_UNROLL
  for (int i = 0; i < R; ++i) {
    float sum = running[i].sum;
    TRIREME_UNROLL
    for (int bits = 1; bits < kAcross; bits *= 2) sum += shuffle_xor(sum, bits);
    inverse[i] = sum > 0 ? 1.0F / sum : 0.0F;
    const int row = first + at.line + kLines * i;
    if (at.across == 0 && row < p.queries)
      p.lse[(batch * p.heads + head) * p.queries + row] = sum > 0 ? running[i].maximum * kLn2 + logf(sum) : -INFINITY;
  }
  store<R, D>(sums, inverse, p.out + batch * p.queries * p.out_pitch + head * p.head_dim, p.out_pitch, first, p.queries,
              p.head_dim);
}

// ---- backward -------------------------------------------------------------------------------------------------------

constexpr int kBackwardRows = 2;                ///< of a thread
constexpr int kOwned = kBackwardRows * kLines;  ///< of a block

template <int D>
constexpr int backward_bytes() {
  return 2 * Tile<kOwned, D>::kBytes + 2 * Tile<kStreamed, D>::kBytes + Weights<kBackwardRows>::kBytes;
}

/// delta = rowsum(dout out) - dlse. Eight threads share a row of one head.
__global__ void __launch_bounds__(kThreads) delta_f32_kernel(const __grid_constant__ Backward p) {
  const Forward& f = p.forward;
  const Place at;
  const std::int64_t item = std::int64_t{blockIdx.x} * kLines + at.line;  // (token, head)
  const std::int64_t token = item / f.heads;
  const int head = static_cast<int>(item % f.heads);
  const bool exists = token < std::int64_t{f.batch} * f.queries;
  float sum = 0;
  for (int d = at.across; exists && d < f.head_dim; d += kAcross)
    sum += f.out[token * f.out_pitch + head * f.head_dim + d] * p.dout[token * p.dout_pitch + head * f.head_dim + d];
  TRIREME_UNROLL
  for (int bits = 1; bits < kAcross; bits *= 2) sum += shuffle_xor(sum, bits);
  if (!exists || at.across != 0) return;
  const std::int64_t to = (token / f.queries * f.heads + head) * f.queries + token % f.queries;
  p.delta[to] = p.dlse == nullptr ? sum : sum - p.dlse[to];
}

/// The values of a query that its scores need.
struct Query {
  float log2_sum = 0, delta = 0;  ///< lse in powers of two
  KeyRange visible = {0, 0};
  __device__ __forceinline__ void read(const Backward& p, std::int64_t batch, int head, int row) {
    const Forward& f = p.forward;
    visible = keys_of(f, batch, row);
    if (row >= f.queries) return;
    const std::int64_t at = (batch * f.heads + head) * f.queries + row;
    log2_sum = f.lse[at] * kLog2E;
    delta = p.delta[at];
  }
  /// p and ds in place of the products q k and dout v.
  __device__ __forceinline__ void weigh(int key, float log2_scale, float& score, float& gradient) const {
    score = visible.has(key) ? exp2_fast(score * log2_scale - log2_sum) : 0.0F;
    gradient = visible.has(key) ? score * (gradient - delta) : 0.0F;
  }
};

/// dk and dv of 32 keys: the heads of the group in order, and of each the queries in order.
template <int D>
__global__ void __launch_bounds__(kThreads) keys_f32_kernel(const __grid_constant__ Backward p) {
  constexpr int R = kBackwardRows;
  TRIREME_DYNAMIC_SHARED(memory, 16);
  const Forward& f = p.forward;
  const Tile<kOwned, D> tile_k(memory), tile_v(memory + tile_k.kBytes);
  const Tile<kStreamed, D> tile_q(memory + 2 * tile_k.kBytes), tile_do(memory + 2 * tile_k.kBytes + tile_q.kBytes);
  const Weights<R> scratch(memory + 2 * tile_k.kBytes + 2 * tile_q.kBytes);
  const Place at;
  const int kv_head = static_cast<int>(blockIdx.y), group = f.heads / f.kv_heads;
  const std::int64_t batch = blockIdx.z, tokens = batch * f.queries, key_tokens = batch * f.keys;
  const int first = static_cast<int>(blockIdx.x) * kOwned, sees_first = first - (f.keys - f.queries);
  tile_k.copy_from(f.k + key_tokens * f.kv_pitch + kv_head * f.head_dim, f.kv_pitch, first, f.keys, f.head_dim);
  tile_v.copy_from(f.v + key_tokens * f.kv_pitch + kv_head * f.head_dim, f.kv_pitch, first, f.keys, f.head_dim);

  Four dk[R][D / 32] = {}, dv[R][D / 32] = {};
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const float* const q = f.q + tokens * f.q_pitch + head * f.head_dim;
    const float* const dout = p.dout + tokens * p.dout_pitch + head * f.head_dim;
    const int begin = f.causal && sees_first > 0 ? sees_first / kStreamed : 0;
    for (int row = begin * kStreamed; row < f.queries; row += kStreamed) {
      const KeyTiles seen(f, batch, row, kStreamed);
      if (seen.begin * kStreamed >= first + kOwned || seen.end * kStreamed <= first) continue;
      sync_threads();  // all threads are done with the previous tiles
      tile_q.copy_from(q, f.q_pitch, row, f.queries, f.head_dim);
      tile_do.copy_from(dout, p.dout_pitch, row, f.queries, f.head_dim);
      sync_threads();
      float scores[R][4], gradients[R][4];  // [keys, queries]
      multiply(tile_k, tile_q, up_to_four(f.head_dim), scores);
      multiply(tile_v, tile_do, up_to_four(f.head_dim), gradients);
      TRIREME_UNROLL
      for (int j = 0; j < 4; ++j) {
        Query query;
        query.read(p, batch, head, row + at.across + kAcross * j);
        TRIREME_UNROLL
        for (int i = 0; i < R; ++i)
          query.weigh(first + at.line + kLines * i, f.scale * kLog2E, scores[i][j], gradients[i][j]);
      }
      accumulate<R, D>(scores, scratch, tile_do, dv);
      accumulate<R, D>(gradients, scratch, tile_q, dk);
    }
  }
  const std::int64_t to = key_tokens * p.dkv_pitch + kv_head * f.head_dim;
  store<R, D>(dk, {f.scale, f.scale}, p.dk + to, p.dkv_pitch, first, f.keys, f.head_dim);
  store<R, D>(dv, {1, 1}, p.dv + to, p.dkv_pitch, first, f.keys, f.head_dim);
}

/// dq of 32 queries of one head.
template <int D>
__global__ void __launch_bounds__(kThreads) queries_f32_kernel(const __grid_constant__ Backward p) {
  constexpr int R = kBackwardRows;
  TRIREME_DYNAMIC_SHARED(memory, 16);
  const Forward& f = p.forward;
  const Tile<kOwned, D> tile_q(memory), tile_do(memory + tile_q.kBytes);
  const Tile<kStreamed, D> tile_k(memory + 2 * tile_q.kBytes), tile_v(memory + 2 * tile_q.kBytes + tile_k.kBytes);
  const Weights<R> scratch(memory + 2 * tile_q.kBytes + 2 * tile_k.kBytes);
  const Place at;
  const int head = static_cast<int>(blockIdx.y), kv_head = head / (f.heads / f.kv_heads);
  const std::int64_t batch = blockIdx.z, tokens = batch * f.queries, key_tokens = batch * f.keys;
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kOwned;  // causal: the longest rows start first
  const float* const k = f.k + key_tokens * f.kv_pitch + kv_head * f.head_dim;
  const float* const v = f.v + key_tokens * f.kv_pitch + kv_head * f.head_dim;
  tile_q.copy_from(f.q + tokens * f.q_pitch + head * f.head_dim, f.q_pitch, first, f.queries, f.head_dim);
  tile_do.copy_from(p.dout + tokens * p.dout_pitch + head * f.head_dim, p.dout_pitch, first, f.queries, f.head_dim);
  Query query[R];
  TRIREME_UNROLL
  for (int i = 0; i < R; ++i) query[i].read(p, batch, head, first + at.line + kLines * i);

  Four dq[R][D / 32] = {};
  const KeyTiles tiles(f, batch, first, kOwned);
  for (int step = tiles.begin; step < tiles.end; ++step) {
    sync_threads();  // all threads are done with the previous tiles
    tile_k.copy_from(k, f.kv_pitch, step * kStreamed, f.keys, f.head_dim);
    tile_v.copy_from(v, f.kv_pitch, step * kStreamed, f.keys, f.head_dim);
    sync_threads();
    float scores[R][4], gradients[R][4];  // [queries, keys]
    multiply(tile_q, tile_k, up_to_four(f.head_dim), scores);
    multiply(tile_do, tile_v, up_to_four(f.head_dim), gradients);
    TRIREME_UNROLL
    for (int i = 0; i < R; ++i) {
      TRIREME_UNROLL
      for (int j = 0; j < 4; ++j)
        query[i].weigh(step * kStreamed + at.across + kAcross * j, f.scale * kLog2E, scores[i][j], gradients[i][j]);
    }
    accumulate<R, D>(gradients, scratch, tile_k, dq);
  }
  store<R, D>(dq, {f.scale, f.scale}, p.dq + tokens * p.dq_pitch + head * f.head_dim, p.dq_pitch, first, f.queries,
              f.head_dim);
}

// ---- starting them --------------------------------------------------------------------------------------------------

unsigned blocks(std::int64_t n, int size) { return static_cast<unsigned>((n + size - 1) / size); }

void check(const Forward& p, const char* where) {
  require(p.head_dim >= 1 && p.head_dim <= 128, where, "head_dim {}; expected 1 to 128", p.head_dim);
  require(p.kv_heads > 0 && p.heads % p.kv_heads == 0, where, "{} heads share {} key heads; expected a divisor",
          p.heads, p.kv_heads);
}

template <int D>
void launch_backward(const Backward& p, Stream stream) {
  const Forward& f = p.forward;
  const auto batch = static_cast<unsigned>(f.batch);
  if (f.keys > 0)
    launch({"attention_f32 keys",
            {blocks(f.keys, kOwned), static_cast<unsigned>(f.kv_heads), batch},
            {kThreads, 1, 1},
            backward_bytes<D>(),
            stream},
           &keys_f32_kernel<D>, p);
  if (f.queries > 0)
    launch({"attention_f32 queries",
            {blocks(f.queries, kOwned), static_cast<unsigned>(f.heads), batch},
            {kThreads, 1, 1},
            backward_bytes<D>(),
            stream},
           &queries_f32_kernel<D>, p);
}

}  // namespace

void attention_forward_f32(const AttentionForward<float>& p, Stream stream) {
  check(p, "attention_f32");
  if (p.queries == 0 || p.batch == 0) return;
  const auto start = [&](auto* kernel, std::size_t bytes) {
    const Dim3 grid = {blocks(p.queries, kForwardRows * kLines), static_cast<unsigned>(p.heads),
                       static_cast<unsigned>(p.batch)};
    launch({"attention_f32", grid, {kThreads, 1, 1}, bytes, stream}, kernel, p);
  };
  if (p.head_dim <= 32)
    start(&forward_f32_kernel<32>, forward_bytes<32>());
  else if (p.head_dim <= 64)
    start(&forward_f32_kernel<64>, forward_bytes<64>());
  else
    start(&forward_f32_kernel<128>, forward_bytes<128>());
}

void attention_backward_f32(const AttentionBackward<float>& p, Stream stream) {
  const Forward& f = p.forward;
  check(f, "attention_backward_f32");
  if (f.batch == 0) return;
  if (f.queries > 0)
    launch({"attention_f32 delta",
            {blocks(std::int64_t{f.batch} * f.queries * f.heads, kLines), 1, 1},
            {kThreads, 1, 1},
            0,
            stream},
           &delta_f32_kernel, p);
  if (f.head_dim <= 32)
    launch_backward<32>(p, stream);
  else if (f.head_dim <= 64)
    launch_backward<64>(p, stream);
  else
    launch_backward<128>(p, stream);
}

}  // namespace trireme::cuda
