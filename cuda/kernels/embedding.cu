// Kernels of the embedding; bytes: cuda/kernels/embedding.h.
//
// Backward: a block owns some rows of dweight and a stretch of their columns; each thread always has the same columns.
// It reads all ids in order and lists those of its rows, also in order: a place in the list is the number of such ids
// before it, from ballots. When the list is full, or the ids end, the block adds the listed rows of dy. So sums are in
// the order of the tokens, for any schedule. Three things keep it near the speed of memory:
//   - The rows of a block are far apart. The most frequent tokens of a text have neighbouring ids: those of GPT-2's
//     " a", " the", " to", " of" and " in" are within 32, and are a seventh of a text. A block for all of them would
//     still work when all others have ended.
//   - Loads do not wait for one another: a thread has kSought ids under way, then kBatch rows of dy and of dweight, and
//     the next kBatch rows of dy.
//   - A row that comes several times in a batch is loaded and stored once.
#include "cuda/kernels/embedding.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "core/error.h"
#include "cuda/kernels/pieces.h"

namespace trireme::cuda {

namespace {

constexpr int kThreads = 128;
constexpr unsigned kMaxBlocksY = 65535;  // of a grid

// Of backward:
constexpr int kMostThreads = 192, kMostWarps = kMostThreads / 32;  // a GPT-2's row of 768 values
constexpr int kMostGroups = 512;  // of rows, each with a block; more would read the ids more often
constexpr int kSought = 8;        // ids of a thread under way
constexpr int kBatch = 8;         // rows of a thread under way
constexpr int kWidth = 4;         // floats in 16 bytes
constexpr int kList = 3072;       // more than a round of ids

/// Blocks [pieces of a row, tokens]; blocks loop over tokens beyond a grid's limit.
template <class T>
__global__ void __launch_bounds__(kThreads)
    embedding_kernel(const T* weight, const std::int32_t* ids, std::int64_t first, std::int64_t tokens,
                     std::int64_t rows, std::int64_t width, T* y) {
  constexpr int kValues = kPackSize<T>;
  const MyPiece mine = my_piece<kValues>(width);
  if (mine.count == 0) return;
  for (std::int64_t n = blockIdx.y; n < tokens; n += gridDim.y) {
    const std::int64_t local = ids[n] - first;
    Pack<T, kValues> piece = {};
    if (local >= 0 && local < rows) piece = load_piece<kValues>(weight + local * width + mine.first, mine.count);
    store_piece(y + n * width + mine.first, piece, mine.count);
  }
}

__device__ __forceinline__ int bits_of(std::uint32_t word) {
  int count = 0;
  for (; word != 0; word &= word - 1) ++count;
  return count;
}

/// The listed tokens and the rows of dweight that they are added to.
struct Listed {
  const int *token, *row;
  int length;
};

/// A thread's columns of dy and dweight. Whole: all kWidth exist, at multiples of 16 bytes (8 of a 16-bit dy).
template <class T, bool Whole>
struct Columns {
  const T* dy;
  float* dweight;
  int width, count;
  __device__ __forceinline__ Packed<T, kWidth> gradient(int token) const {
    const T* const from = dy + std::int64_t{token} * width;
    if constexpr (Whole) return load_vector<Packed<T, kWidth>>(from);
    return std::bit_cast<Packed<T, kWidth>>(load_piece<kWidth>(from, count));
  }
  __device__ __forceinline__ Pack<float, kWidth> sum(int row) const {
    const float* const from = dweight + std::int64_t{row} * width;
    if constexpr (Whole) return load_vector<Pack<float, kWidth>>(from);
    return load_piece<kWidth>(from, count);
  }
  __device__ __forceinline__ void store(int row, const Pack<float, kWidth>& sum) const {
    float* const to = dweight + std::int64_t{row} * width;
    if constexpr (Whole) return store_vector(to, sum);
    store_piece(to, sum, count);
  }
};

/// Adds the listed rows of dy in order, kBatch at a time.
template <class T, bool Whole>
__device__ __forceinline__ void add_listed(const Columns<T, Whole>& columns, const Listed& list) {
  Packed<T, kWidth> next[kBatch] = {};
  const auto load_next = [&](int begin) {
    TRIREME_UNROLL
    for (int j = 0; j < kBatch; ++j)
      if (begin + j < list.length) next[j] = columns.gradient(list.token[begin + j]);
  };
  load_next(0);
  for (int begin = 0; begin < list.length; begin += kBatch) {
    int row[kBatch];
    Pack<float, kWidth> sum[kBatch];
    Packed<T, kWidth> gradient[kBatch];
    TRIREME_UNROLL
    for (int j = 0; j < kBatch; ++j) {
      row[j] = begin + j < list.length ? list.row[begin + j] : -1 - j;  // equals no other
      bool first = row[j] >= 0;                                         // in this batch
      TRIREME_UNROLL
      for (int k = 0; k < j; ++k) first = first && row[k] != row[j];
      if (first) sum[j] = columns.sum(row[j]);
      gradient[j] = next[j];
    }
    load_next(begin + kBatch);
    TRIREME_UNROLL
    for (int j = 0; j < kBatch; ++j) {
      TRIREME_UNROLL
      for (int k = 0; k < j; ++k)
        if (row[k] == row[j]) sum[j] = sum[k];
      TRIREME_UNROLL
      for (int i = 0; i < kWidth; ++i) sum[j].values[i] += unpacked<T, kWidth>(gradient[j], i);
    }
    TRIREME_UNROLL
    for (int j = 0; j < kBatch; ++j) {
      bool last = row[j] >= 0;
      TRIREME_UNROLL
      for (int k = j + 1; k < kBatch; ++k) last = last && row[k] != row[j];
      if (last) columns.store(row[j], sum[j]);
    }
  }
}

/// Blocks [stretches of a row, groups]: the rows of a group have its number in the bits `mask`.
template <class T>
__global__ void __launch_bounds__(kMostThreads, 2)
    embedding_backward_kernel(const T* dy, const std::int32_t* ids, int first, int tokens, int rows, int width,
                              int mask, float* dweight) {
  TRIREME_SHARED(int, counts, 2 * kMostWarps);  // of the warps in this round, and in the one before
  TRIREME_SHARED(int, token, kList);
  TRIREME_SHARED(int, row, kList);
  const int threads = static_cast<int>(blockDim.x), warps = threads / 32, round = kSought * threads;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int group = static_cast<int>(blockIdx.y);
  const std::uint32_t before = (1U << lane) - 1;
  const MyPiece mine = my_piece<kWidth>(width);
  const bool whole = mine.count == kWidth && width % kWidth == 0 &&
                     reinterpret_cast<std::uintptr_t>(dy) % sizeof(Packed<T, kWidth>) == 0 &&
                     reinterpret_cast<std::uintptr_t>(dweight) % 16 == 0;
  const int none = first - 1;
  int next[kSought];  // not yet made relative to `first`: that would wait for each
  const auto load_next = [&](int begin) {
    TRIREME_UNROLL
    for (int j = 0; j < kSought; ++j) next[j] = begin + 32 * j < tokens ? ids[begin + 32 * j] : none;
  };
  const int mine_in_round = warp * 32 * kSought + lane;  // a warp has neighbouring ids, 32 at a time
  load_next(mine_in_round);
  int length = 0;  // of the list
  for (int base = 0, turn = 0; base < tokens; base += round, turn ^= 1) {
    const int begin = base + mine_in_round;
    int local[kSought];
    std::uint32_t hits = 0;  // bit j: local[j] is a row of this group
    TRIREME_UNROLL
    for (int j = 0; j < kSought; ++j) {
      local[j] = next[j] - first;
      const bool hit = static_cast<unsigned>(local[j]) < static_cast<unsigned>(rows) && (local[j] & mask) == group;
      hits |= static_cast<std::uint32_t>(hit) << j;
    }
    load_next(begin + round);
    int found = 0;  // by the warp; most often nothing
    if (ballot(hits != 0) != 0) {
      TRIREME_UNROLL
      for (int j = 0; j < kSought; ++j) found += bits_of(ballot((hits >> j & 1U) != 0));
    }
    int* const counted = counts + turn * kMostWarps;
    if (lane == 0) counted[warp] = found;
    sync_threads();
    int place = length;
    TRIREME_UNROLL
    for (int w = 0; w < kMostWarps; ++w) {
      const int count = w < warps ? counted[w] : 0;
      if (w < warp) place += count;
      length += count;
    }
    if (found != 0) {
      TRIREME_UNROLL
      for (int j = 0; j < kSought; ++j) {
        const std::uint32_t lanes = ballot((hits >> j & 1U) != 0);
        if ((hits >> j & 1U) != 0) {
          const int at = place + bits_of(lanes & before);
          token[at] = begin + 32 * j;
          row[at] = local[j];
        }
        place += bits_of(lanes);
      }
    }
    if (length + round <= kList && base + round < tokens) continue;
    sync_threads();
    const Listed list = {token, row, length};
    if (whole)
      add_listed(Columns<T, true>{dy + mine.first, dweight + mine.first, width, kWidth}, list);
    else if (mine.count > 0)
      add_listed(Columns<T, false>{dy + mine.first, dweight + mine.first, width, mine.count}, list);
    sync_threads();
    length = 0;
  }
}

LaunchConfig config(const char* name, std::int64_t width, int per_thread, std::int64_t rows, Stream stream) {
  LaunchConfig c = {name, grid_of_pieces(width, kThreads, per_thread), {kThreads, 1, 1}, 0, stream};
  c.grid.y = rows < kMaxBlocksY ? static_cast<unsigned>(rows) : kMaxBlocksY;
  return c;
}

}  // namespace

template <class T>
void embedding(const T* weight, const std::int32_t* ids, std::int64_t first, std::int64_t tokens, std::int64_t rows,
               std::int64_t width, T* y, Stream stream) {
  if (tokens * width == 0) return;
  launch(config("embedding", width, kPackSize<T>, tokens, stream), embedding_kernel<T>, weight, ids, first, tokens,
         rows, width, y);
}

template <class T>
void embedding_backward(const T* dy, const std::int32_t* ids, std::int64_t first, std::int64_t tokens,
                        std::int64_t rows, std::int64_t width, float* dweight, Stream stream) {
  if (tokens * width * rows == 0) return;
  constexpr const char* name = "embedding_backward";
  constexpr int most = std::numeric_limits<int>::max() - kList;
  require(tokens <= most && rows <= most && width <= most && first <= most, name,
          "{} tokens, {} rows of {} from {} on; expected at most {} of each", tokens, rows, width, first, most);
  const auto blocks = [](std::int64_t count, std::int64_t size) { return static_cast<int>((count + size - 1) / size); };
  const int pieces = blocks(width, kWidth), stretches = blocks(pieces, kMostThreads);
  // At least 128 threads, for the search.
  const int threads = std::max(128, blocks(blocks(pieces, stretches), 32) * 32);
  int groups = 1;
  while (groups < kMostGroups && groups < rows) groups *= 2;
  launch({name,
          {static_cast<unsigned>(blocks(pieces, threads)), static_cast<unsigned>(groups), 1},
          {static_cast<unsigned>(threads), 1, 1},
          0,
          stream},
         embedding_backward_kernel<T>, dy, ids, static_cast<int>(first), static_cast<int>(tokens),
         static_cast<int>(rows), static_cast<int>(width), groups - 1, dweight);
}

// NOLINTBEGIN(bugprone-macro-parentheses): the argument is a type
#define INSTANTIATE(T)                                                                                               \
  template void embedding(const T*, const std::int32_t*, std::int64_t, std::int64_t, std::int64_t, std::int64_t, T*, \
                          Stream);                                                                                   \
  template void embedding_backward(const T*, const std::int32_t*, std::int64_t, std::int64_t, std::int64_t,          \
                                   std::int64_t, float*, Stream);
INSTANTIATE(float)
INSTANTIATE(bf16)
INSTANTIATE(f16)
#undef INSTANTIATE
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace trireme::cuda
