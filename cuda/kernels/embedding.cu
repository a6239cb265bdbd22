// Kernels of the embedding; bytes: cuda/kernels/embedding.h.
//
// Backward: a block owns kRows rows of dweight and a stretch of their columns. It reads all ids in order, kThreads at a
// time, and lists those of its rows, also in order: a thread's place in the list is the number of such ids before its
// own, from ballots. Then the block adds the listed rows of dy one after another, each thread always to the same
// columns. So sums are in the order of the tokens, for any schedule.
#include "cuda/kernels/embedding.h"

#include "cuda/kernels/pieces.h"

namespace trireme::cuda {

namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kRows = 32;
constexpr unsigned kMaxBlocksY = 65535;  // of a grid

/// Blocks [pieces of a row, tokens]; blocks loop over tokens beyond a grid's limit.
template <class T>
__global__ void __launch_bounds__(kThreads)
    embedding_kernel(const T* weight, const std::int32_t* ids, std::int64_t first, std::int64_t tokens,
                     std::int64_t here, std::int64_t width, T* y) {
  constexpr int kWidth = kPackSize<T>;
  const MyPiece mine = my_piece<kWidth>(width);
  if (mine.count == 0) return;
  for (std::int64_t n = blockIdx.y; n < tokens; n += gridDim.y) {
    const std::int64_t local = ids[n] - first;
    Pack<T, kWidth> piece = {};
    if (local >= 0 && local < here) piece = load_piece<kWidth>(weight + local * width + mine.first, mine.count);
    store_piece(y + n * width + mine.first, piece, mine.count);
  }
}

__device__ __forceinline__ int bits_of(std::uint32_t word) {
  int count = 0;
  for (; word != 0; word &= word - 1) ++count;
  return count;
}

/// Blocks [pieces of a row, groups of kRows rows].
template <class T>
__global__ void __launch_bounds__(kThreads)
    embedding_backward_kernel(const T* dy, const std::int32_t* ids, std::int64_t first, std::int64_t tokens,
                              std::int64_t here, std::int64_t width, float* dweight) {
  constexpr int kWidth = 4;  // floats in 16 bytes
  TRIREME_SHARED(int, counts, kWarps);
  TRIREME_SHARED(std::int64_t, token, kThreads);  // the list: which row of dy
  TRIREME_SHARED(int, row, kThreads);             // and the block's row that it is added to
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const MyPiece mine = my_piece<kWidth>(width);
  for (std::int64_t group = blockIdx.y; group * kRows < here; group += gridDim.y) {
    const std::int64_t row0 = group * kRows, rows = here - row0 < kRows ? here - row0 : kRows;
    for (std::int64_t base = 0; base < tokens; base += kThreads) {
      const std::int64_t n = base + thread, local = n < tokens ? ids[n] - first - row0 : -1;
      const bool listed = local >= 0 && local < rows;
      const std::uint32_t bits = ballot(listed);
      if (lane == 0) counts[warp] = bits_of(bits);
      sync_threads();
      int place = bits_of(bits & ((1U << lane) - 1)), length = 0;
      for (int w = 0; w < kWarps; ++w) {
        if (w < warp) place += counts[w];
        length += counts[w];
      }
      if (listed) {
        token[place] = n;
        row[place] = static_cast<int>(local);
      }
      sync_threads();
      if (mine.count == 0) continue;
      for (int i = 0; i < length; ++i) {
        const auto d = load_piece<kWidth>(dy + token[i] * width + mine.first, mine.count);
        float* const to = dweight + (row0 + row[i]) * width + mine.first;
        auto sum = load_piece<kWidth>(to, mine.count);
        TRIREME_UNROLL
        for (int j = 0; j < kWidth; ++j) sum.values[j] += to_float(d.values[j]);
        store_piece(to, sum, mine.count);
      }
    }
  }
}

LaunchConfig config(const char* name, std::int64_t width, int per_thread, std::int64_t rows, Stream stream) {
  LaunchConfig c = {name, grid_of_pieces(width, kThreads, per_thread), {kThreads, 1, 1}, 0, stream};
  c.grid.y = rows < kMaxBlocksY ? static_cast<unsigned>(rows) : kMaxBlocksY;
  return c;
}

}  // namespace

template <class T>
void embedding(const T* weight, const std::int32_t* ids, std::int64_t first, std::int64_t tokens, std::int64_t here,
               std::int64_t width, T* y, Stream stream) {
  if (tokens * width == 0) return;
  launch(config("embedding", width, kPackSize<T>, tokens, stream), embedding_kernel<T>, weight, ids, first, tokens,
         here, width, y);
}

template <class T>
void embedding_backward(const T* dy, const std::int32_t* ids, std::int64_t first, std::int64_t tokens,
                        std::int64_t here, std::int64_t width, float* dweight, Stream stream) {
  if (tokens * width * here == 0) return;
  launch(config("embedding_backward", width, 4, (here + kRows - 1) / kRows, stream), embedding_backward_kernel<T>, dy,
         ids, first, tokens, here, width, dweight);
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
