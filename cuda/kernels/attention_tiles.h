// What the attention kernels for mma.sync share. In all of them a block has four warps. A warp owns sixteen rows
// (queries or keys), and the f32 fragments [16, N] of their products with a tile of N rows of the other kind.
//
// A fragment's element i of thread `lane`: row lane / 4 + 8 (i / 2), column 8 n + 2 (lane % 4) + i % 2. Two
// neighbouring fragments of results, rounded, are the A operand of the next product: scores never pass through shared
// memory.
// Read next: cuda/kernels/attention_sm80.cu.
#pragma once

#include "core/error.h"
#include "cuda/kernels/attention.h"
#include "cuda/kernels/tile.h"

namespace trireme::cuda::attention {

constexpr int kRows = 64;  ///< rows of a block
constexpr int kThreads = 128;
constexpr float kLog2E = 1.4426950408889634F, kLn2 = 0.6931471805599453F;

/// The keys that a query sees: `count` from `begin` on. Testing a score takes one comparison.
struct KeyRange {
  int begin;
  unsigned count;
  __device__ __forceinline__ bool has(int key) const { return static_cast<unsigned>(key - begin) < count; }
};

/// Empty for a row past the end.
template <class T>
__device__ __forceinline__ KeyRange keys_of(const AttentionForward<T>& p, std::int64_t batch, int row) {
  if (row >= p.queries) return {0, 0};
  const int causal_end = row + p.keys - p.queries + 1;
  const int end = p.causal && causal_end < p.keys ? causal_end : p.keys;
  int begin = p.first_key == nullptr ? 0 : p.first_key[batch * p.queries + row];
  begin = begin < 0 ? 0 : begin;
  return {begin, begin < end ? static_cast<unsigned>(end - begin) : 0U};
}

/// The smallest first key of Count rows from `row` on, the same in every lane; never below 0.
template <int Count = kRows, class T>
__device__ __forceinline__ int first_key_of_rows(const AttentionForward<T>& p, std::int64_t batch, int row) {
  if (p.first_key == nullptr) return 0;
  int least = p.keys;
  for (int i = row + static_cast<int>(threadIdx.x % 32); i < row + Count && i < p.queries; i += 32) {
    const int first = p.first_key[batch * p.queries + i];
    least = first < least ? first : least;
  }
  TRIREME_UNROLL
  for (int bits = 16; bits > 0; bits /= 2) {
    const int other = shuffle_xor(least, bits);
    least = other < least ? other : least;
  }
  return least < 0 ? 0 : least;
}

/// One past the last key that any of Count rows from `row` on may see.
template <int Count = kRows, class T>
__device__ __forceinline__ int keys_end(const AttentionForward<T>& p, int row) {
  const int seen = row + Count + p.keys - p.queries;
  if (!p.causal || seen >= p.keys) return p.keys;
  return seen < 0 ? 0 : seen;
}

/// The tiles of N queries that a block of Keys keys visits, for each head of its group in turn. N: a divisor of 64.
template <class T, int N, int Keys>
struct QueryTiles {
  const AttentionBackward<T>& p;
  std::int64_t batch;
  int key;           ///< the block's first
  int begin, count;  ///< tiles, per head
  int steps;         ///< over all heads of the group

  __device__ __forceinline__ QueryTiles(const AttentionBackward<T>& attention, std::int64_t batch_index, int first_key)
      : p(attention), batch(batch_index), key(first_key) {
    const auto& f = p.forward;
    const int tiles = (f.queries + N - 1) / N;
    const int sees_key = key - (f.keys - f.queries);  // the first such query, when causal
    begin = f.causal && sees_key > 0 ? sees_key / N : 0;
    count = begin < tiles ? tiles - begin : 0;
    steps = count * (f.heads / f.kv_heads);
  }
  __device__ __forceinline__ int member(int step) const { return step / count; }
  __device__ __forceinline__ int row(int step) const { return (begin + step % count) * N; }
  /// `step`, or the next one whose queries see a key of this block.
  __device__ __forceinline__ int visible(int step) const {
    if (p.forward.first_key == nullptr) return step;
    const std::int32_t* const first = p.first_tile + batch * ((p.forward.queries + kRows - 1) / kRows);
    while (step < steps && first[row(step) / kRows] >= key + Keys) ++step;
    return step;
  }
};

/// sums [16, N] += rows `row` to `row` + 15 of a [.., D] times the transpose of b [N, D].
template <class T, int D, int N, class A, class B>
__device__ __forceinline__ void multiply_rows(const A& a, int row, const B& b, float (&sums)[N][4]) {
  TRIREME_UNROLL
  for (int d = 0; d < D / 16; ++d) {
    std::uint32_t left[4];
    a.load(left, row, 16 * d);
    TRIREME_UNROLL
    for (int n = 0; n < N / 2; ++n) {
      std::uint32_t right[4];
      b.load_pair(right, 16 * n, 16 * d);
      mma_m16n8k16<T>(sums[2 * n], left, right);
      mma_m16n8k16<T>(sums[2 * n + 1], left, right + 2);
    }
  }
}

/// sums [16, D] += weights [16, N], rounded to T, times b [N, D].
template <class T, int D, int N, class B>
__device__ __forceinline__ void accumulate(const float (&weights)[N][4], const B& b, float (&sums)[D / 8][4]) {
  TRIREME_UNROLL
  for (int n = 0; n < N / 2; ++n) {
    const std::uint32_t left[4] = {pack_pair<T>(weights[2 * n][0], weights[2 * n][1]),
                                   pack_pair<T>(weights[2 * n][2], weights[2 * n][3]),
                                   pack_pair<T>(weights[2 * n + 1][0], weights[2 * n + 1][1]),
                                   pack_pair<T>(weights[2 * n + 1][2], weights[2 * n + 1][3])};
    TRIREME_UNROLL
    for (int d = 0; d < D / 16; ++d) {
      std::uint32_t right[4];
      b.load_pair_transposed(right, 16 * n, 16 * d);
      mma_m16n8k16<T>(sums[2 * d], left, right);
      mma_m16n8k16<T>(sums[2 * d + 1], left, right + 2);
    }
  }
}

/// to[first + row] = factor[half] sums, for this warp's rows `row` to `row` + 15; those from `rows` on do not exist.
/// The values go through the same rows of `tile`, which no other warp may use, so that each thread writes 16 bytes to
/// global memory.
template <class T, int D, class Tile>
__device__ __forceinline__ void store_rows(const float (&sums)[D / 8][4], const float (&factor)[2], const Tile& tile,
                                           int row, T* to, std::int64_t pitch, int first, int rows, int columns) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  TRIREME_UNROLL
  for (int half = 0; half < 2; ++half) {
    TRIREME_UNROLL
    for (int n = 0; n < D / 8; ++n)
      store_vector(tile.chunk(row + lane / 4 + 8 * half, n) + lane % 4 * 4,
                   pack_pair<T>(sums[n][2 * half] * factor[half], sums[n][2 * half + 1] * factor[half]));
  }
  sync_warp();
  for (int i = lane; i < 16 * Tile::kChunks; i += 32) {
    const int r = row + i / Tile::kChunks, chunk = i % Tile::kChunks;
    if (first + r < rows && 8 * chunk < columns)
      store_vector(to + (first + r) * pitch + 8 * chunk, load_vector<Pack<std::uint32_t, 4>>(tile.chunk(r, chunk)));
  }
}

/// Throws for calls that the kernels cannot take.
template <class T>
void require_shape(const AttentionForward<T>& p, const char* where) {
  require(p.head_dim % 8 == 0 && p.head_dim >= 8 && p.head_dim <= 128, where,
          "head_dim {}; expected a multiple of 8 up to 128", p.head_dim);
  require(p.kv_heads > 0 && p.heads % p.kv_heads == 0, where, "{} heads share {} key heads; expected a divisor",
          p.heads, p.kv_heads);
}

template <class T>
bool aligned(const T* pointer, std::int64_t pitch) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0 && pitch % 8 == 0;
}

/// Throws for calls that the backward kernels cannot take.
template <class T>
void require_backward(const AttentionBackward<T>& p, const char* where) {
  const auto& f = p.forward;
  require_shape(f, where);
  require(aligned(f.q, f.q_pitch) && aligned(f.k, f.kv_pitch) && aligned(f.v, f.kv_pitch) &&
              aligned(f.out, f.out_pitch) && aligned(p.dout, p.dout_pitch) && aligned(p.dq, p.dq_pitch) &&
              aligned(p.dk, p.dkv_pitch) && aligned(p.dv, p.dkv_pitch),
          where,
          "q, k, v, out and their gradients must begin at multiples of 16 bytes, with pitches that are multiples of 8 "
          "elements");
  require(f.first_key == nullptr || p.first_tile != nullptr, where,
          "first_key is given, but no scratch first_tile; expected {} numbers",
          f.batch * ((f.queries + kRows - 1) / kRows));
}

}  // namespace trireme::cuda::attention
