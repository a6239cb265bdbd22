// What the attention kernels for sm_90a share: tiles as TMA writes and wgmma reads them, rings of such tiles, products
// of a warp group, and the output of results. A block has a producer warp group, whose first warp copies, and
// consumers; a consumer owns 64 rows (of queries, or of keys) and the f32 sums [64, N] of products.
//
// Sum i of thread `t` of a group: row 16 (t / 32) + t % 32 / 4 + 8 (i / 2 % 2), column 8 (i / 4) + 2 (t % 4) + i % 2.
// Eight consecutive sums, rounded, are the four registers of an A operand [64, 16]: weights never pass through shared
// memory.
// Read next: cuda/kernels/attention_sm90.cu.
#pragma once

#include <cmath>

#include "cuda/device/tensor_map.h"
#include "cuda/kernels/attention_tiles.h"

namespace trireme::cuda::attention {

constexpr int kGroup = 128;  ///< threads of a warp group

/// The consumer that this thread belongs to, from 0; -1 in the producer's threads. The shuffle tells the compiler that
/// all lanes have the same value, so it keeps what depends on it once per warp.
__device__ __forceinline__ int consumer_group() { return shuffle(static_cast<int>(threadIdx.x) / kGroup - 1, 0); }

/// [Rows, D] 16-bit values in shared memory: 64 columns at a time as Rows rows of 128 bytes, in the 128-byte swizzle.
template <int Rows, int D>
struct SwizzledTile {
  static constexpr int kChunkBytes = 128 * Rows, kBytes = D / 64 * kChunkBytes;
  static_assert(Rows % 8 == 0 && Rows <= 256 && D % 64 == 0);
  std::byte* memory;  // a multiple of 1024 from the start of shared memory

  /// By one thread: tokens from `token` on of one head. The map's box is Rows tokens.
  __device__ __forceinline__ void load(const TensorMap& map, int token, int head, int batch,
                                       std::uint64_t* barrier) const {
    TRIREME_UNROLL
    for (int chunk = 0; chunk < D / 64; ++chunk)
      tma_load_4d(memory + chunk * kChunkBytes, map, 64 * chunk, token, head, batch, barrier);
  }
  /// Descriptor of an operand: its rows are the tile's from `row` on, its K 16 columns from `column` on.
  __device__ __forceinline__ std::uint64_t along_rows(int row, int column) const {
    return descriptor(column / 64 * kChunkBytes + row * 128 + column % 64 * 2, 16);  // the leading offset is unused
  }
  /// Descriptor of an operand: its rows are all D columns of the tile, its K 16 rows from `row` on.
  __device__ __forceinline__ std::uint64_t along_columns(int row) const { return descriptor(row * 128, kChunkBytes); }

 private:
  __device__ __forceinline__ std::uint64_t descriptor(int offset, int leading) const {
    constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62, kEightRows = std::uint64_t{1024 >> 4} << 32;
    // Uses additions, not bit operations, so that the compiler makes all of a tile's descriptors from one register.
    const std::uint32_t start = shared_address(memory) >> 4;
    return (start + static_cast<std::uint32_t>(offset / 16 + (leading / 16 << 16))) | (kEightRows | kSwizzle128);
  }
};

/// Slots that a producer fills and consumers free, in turns: use n, counted from 0 over the life of the block, goes to
/// slot n % Slots. Each slot has two mbarriers, `full` and `empty`, stored side by side from `words` on.
template <int Slots>
struct Ring {
  static constexpr int kBytes = 2 * Slots * 8;
  std::uint64_t* words;

  __device__ __forceinline__ std::uint64_t* full(int use) const { return words + use % Slots; }
  __device__ __forceinline__ std::uint64_t* empty(int use) const { return words + Slots + use % Slots; }
  __device__ __forceinline__ static std::uint32_t parity(int use) {
    return static_cast<std::uint32_t>(use / Slots % 2);
  }
  /// Call in one thread, before the block's barrier. `fillers`: arrivals that make a slot full, besides the bytes.
  __device__ __forceinline__ void init(int fillers, int consumer_warps) const {
    for (int i = 0; i < Slots; ++i) {
      mbarrier_init(full(i), fillers);
      mbarrier_init(empty(i), consumer_warps);
    }
  }
  __device__ __forceinline__ void wait_empty(int use) const { mbarrier_wait(empty(use), parity(use) ^ 1U); }
  __device__ __forceinline__ void wait_full(int use) const { mbarrier_wait(full(use), parity(use)); }
  /// Call in the copying thread: waits for the slot, and announces `bytes` of copies to it.
  __device__ __forceinline__ void begin_fill(int use, int bytes) const {
    wait_empty(use);
    mbarrier_arrive_expect(full(use), bytes);
  }
  /// Call in a whole warp, when its own products no longer read the slot.
  __device__ __forceinline__ void release(int use) const {
    if (threadIdx.x % 32 == 0) mbarrier_arrive(empty(use));
  }
};

/// sums [64, N] = rows `row` to `row` + 63 of a [.., D] times the transpose of b [N, D]. Issues and commits; no wait.
template <class T, int N, int A, int D>
__device__ __forceinline__ void issue_rows_product(const SwizzledTile<A, D>& a, int row, const SwizzledTile<N, D>& b,
                                                   float (&sums)[N / 2]) {
  wgmma_fence();
  TRIREME_UNROLL
  for (int d = 0; d < D; d += 16) wgmma_m64k16<T, N>(sums, a.along_rows(row, d), b.along_rows(0, d), d > 0);
  wgmma_commit();
}

/// sums [64, D] += packed weights [64, N] times b [N, D]. Issues and commits; does not wait.
template <class T, int N, int D>
__device__ __forceinline__ void issue_weighted_sum(const std::uint32_t (&weights)[N / 4], const SwizzledTile<N, D>& b,
                                                   float (&sums)[D / 2]) {
  wgmma_fence();
  TRIREME_UNROLL
  for (int n = 0; n < N; n += 16) wgmma_m64k16_registers<T, D, true>(sums, weights + n / 4, b.along_columns(n), true);
  wgmma_commit();
}

/// Waits until at most `Newest` committed products are in flight; `sums` belong to an older one.
template <int Newest, int Count>
__device__ __forceinline__ void wait_product(float (&sums)[Count]) {
  wgmma_wait<Newest>();
  wgmma_hold<Count>(sums);
}

/// Rounded to T, as an A operand.
template <class T, int Count>
__device__ __forceinline__ void pack_weights(const float (&sums)[Count], std::uint32_t (&weights)[Count / 2]) {
  TRIREME_UNROLL
  for (int i = 0; i < Count / 2; ++i) weights[i] = pack_pair<T>(sums[2 * i], sums[2 * i + 1]);
}

/// Stores a warp's sixteen rows of factor[half] sums to tokens from `token` on, through rows `row` to `row` + 15 of
/// `tile`, which must be free. The map's box is sixteen tokens; tokens past the end are not written. The warp's first
/// lane must wait for the store (tma_store_wait) before the tile is used again.
template <class T, int Rows, int D>
__device__ __forceinline__ void store_sums(const float (&sums)[D / 2], const float (&factor)[2],
                                           const SwizzledTile<Rows, D>& tile, int row, const TensorMap& map, int token,
                                           int head, int batch) {
  const int lane = static_cast<int>(threadIdx.x % 32), r = row + lane % 16;
  TRIREME_UNROLL
  for (int n = 0; n < D / 8; n += 2) {  // two 8 x 16 matrices of columns 8 n and on: above, and eight rows below
    std::uint32_t pairs[4];
    TRIREME_UNROLL
    for (int i = 0; i < 4; ++i)
      pairs[i] = pack_pair<T>(sums[4 * n + 2 * i] * factor[i % 2], sums[4 * n + 2 * i + 1] * factor[i % 2]);
    std::byte* const line = tile.memory + n / 8 * SwizzledTile<Rows, D>::kChunkBytes + r * 128;
    stmatrix_x4(pairs, line + ((n % 8 + lane / 16) ^ (r % 8)) * 16);
  }
  fence_async_proxy();
  sync_warp();
  if (lane == 0) {
    TRIREME_UNROLL
    for (int chunk = 0; chunk < D / 64; ++chunk)
      tma_store_4d(map, tile.memory + chunk * SwizzledTile<Rows, D>::kChunkBytes + row * 128, 64 * chunk, token, head,
                   batch);
    tma_store_commit();
  }
}

struct Place {
  int tile, head, batch;
};

/// The order in which tiles are processed. Heads are grouped into sections whose streamed tensors fit into L2 together.
/// Within a section the tiles with the most work (the first or the last of all heads) come first. Blocks take tiles in
/// turns, in alternating direction. So all end at about the same time.
struct Order {
  int tiles, heads, units;  ///< tiles of a head; heads of a sequence, and of the whole batch
  int section;              ///< heads of a section
  bool last_first;
  int blocks;  ///< of the grid

  __host__ __device__ int count() const { return tiles * units; }
  /// The indices of this block's tiles, while below count(). Turn n has the indices from n * blocks on, ascending with
  /// the block in even turns and descending in odd ones.
  __device__ __forceinline__ int first() const { return static_cast<int>(blockIdx.x); }
  __device__ __forceinline__ int next(int index) const { return 2 * (index / blocks + 1) * blocks - 1 - index; }
  __device__ __forceinline__ Place at(int index) const {
    const int begin = index / (section * tiles) * section, rest = index % (section * tiles);
    const int width = units - begin < section ? units - begin : section;
    const int tile = rest / width, unit = begin + rest % width;
    return {last_first ? tiles - 1 - tile : tile, unit % heads, unit / heads};
  }
};

/// How many of `units` heads form a section: whole groups whose streamed tensors, `bytes` each, fit into L2.
inline int heads_of_section(std::int64_t bytes, int group, int units) {
  constexpr std::int64_t kL2Bytes = std::int64_t{32} << 20;  // an H100 or H200 has 50 MB
  const std::int64_t fit = bytes > 0 ? kL2Bytes / bytes : 1, heads = (fit > 1 ? fit : 1) * group;
  return static_cast<int>(heads < units ? heads : units);
}

/// The smallest of the warp's values, in every lane.
__device__ __forceinline__ int least_of_warp(int value) {
  TRIREME_UNROLL
  for (int bits = 16; bits > 0; bits /= 2) {
    const int other = shuffle_xor(value, bits);
    value = other < value ? other : value;
  }
  return value;
}

}  // namespace trireme::cuda::attention
