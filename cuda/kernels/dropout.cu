// The kernels of dropout; bytes: cuda/kernels/dropout.h. One is for places where a thread's piece of 16 bytes is a run
// of the whole tensor that begins at a multiple of four: whole Philox blocks. One is for all other places: four
// elements per thread, each possibly in another block. The first has a third of the instructions.
#include "cuda/kernels/dropout.h"

#include <array>
#include <cmath>

#include "core/random.h"
#include "cuda/kernels/pieces.h"

namespace trireme::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWords = 4;  // of a Philox block

struct Mask {
  std::uint64_t seed, stream;
  std::uint32_t threshold;  // the upper 24 bits k of a word keep when k / 2^24 >= p
  float scale;              // 1 / (1 - p)
};

/// Pieces are runs of whole blocks: word j belongs to value j.
template <class T>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(const T* x, T* y, Mask mask, const __grid_constant__ DropoutPlace place) {
  constexpr int kWidth = kPackSize<T>;
  const MyPiece mine = my_piece<kWidth>(place.view.count);
  if (mine.count == 0) return;
  auto piece = load_piece<kWidth>(x + mine.first, mine.count);
  const auto element = static_cast<std::uint64_t>(place.start + offsets(place.view, mine.first).of[0]);
  TRIREME_UNROLL
  for (int i = 0; i < kWidth; i += kWords) {
    const auto words = philox(mask.seed, mask.stream, element / kWords + static_cast<unsigned>(i / kWords));
    TRIREME_UNROLL
    for (int j = 0; j < kWords; ++j) {
      const bool keeps = (words[static_cast<std::size_t>(j)] >> 8) >= mask.threshold;
      piece.values[i + j] = from_float<T>(keeps ? to_float(piece.values[i + j]) * mask.scale : 0.0F);
    }
  }
  store_piece(y + mine.first, piece, mine.count);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    dropout_anywhere_kernel(const T* x, T* y, Mask mask, const __grid_constant__ DropoutPlace place) {
  const MyPiece mine = my_piece<kWords>(place.view.count);
  if (mine.count == 0) return;
  auto piece = load_piece<kWords>(x + mine.first, mine.count);
  std::uint64_t block = ~std::uint64_t{0};  // none yet: real blocks are below 2^61
  std::array<std::uint32_t, kWords> words = {};
  for (int i = 0; i < mine.count; ++i) {
    const auto element = static_cast<std::uint64_t>(place.start + offsets(place.view, mine.first + i).of[0]);
    if (element / kWords != block) {
      block = element / kWords;
      words = philox(mask.seed, mask.stream, block);
    }
    const auto in_block = static_cast<unsigned>(element % kWords);
    const std::uint32_t word =
        in_block < 2 ? (in_block == 0 ? words[0] : words[1]) : (in_block == 2 ? words[2] : words[3]);
    const bool keeps = (word >> 8) >= mask.threshold;
    TRIREME_UNROLL
    for (int j = 0; j < kWords; ++j)  // by a constant index, so that the piece stays in registers
      if (j == i) piece.values[j] = from_float<T>(keeps ? to_float(piece.values[j]) * mask.scale : 0.0F);
  }
  store_piece(y + mine.first, piece, mine.count);
}

/// True if pieces of `width` local elements are runs of the whole tensor that begin at a multiple of four.
bool in_whole_blocks(const DropoutPlace& place, int width) {
  const Strided<1>& view = place.view;
  if (place.start % kWords != 0 || view.inner_stride(0) != 1) return false;
  for (int dim = 0; dim + 1 < view.dims; ++dim)
    if (view.stride[0][dim] % kWords != 0) return false;
  return view.dims == 1 || view.inner() % width == 0;
}

}  // namespace

DropoutPlace dropout_place(const Shape& local, const Shape& whole, const Shape& begin) {
  const Shape strides = row_major_strides(whole);
  std::int64_t start = 0;
  for (int dim = 0; dim < begin.dims(); ++dim) start += begin[dim] * strides[dim];
  return {start, strided<1>(local, {strides})};
}

template <class T>
void dropout(const T* x, T* y, double p, std::uint64_t seed, std::uint64_t stream_id, const DropoutPlace& place,
             Stream stream) {
  if (place.view.count == 0) return;
  const Mask mask = {seed, stream_id, static_cast<std::uint32_t>(std::ceil(p * 0x1p24)),
                     p < 1 ? static_cast<float>(1 / (1 - p)) : 0.0F};
  const bool whole = in_whole_blocks(place, kPackSize<T>);
  launch({"dropout",
          grid_of_pieces(place.view.count, kThreads, whole ? kPackSize<T> : kWords),
          {kThreads, 1, 1},
          0,
          stream},
         whole ? dropout_kernel<T> : dropout_anywhere_kernel<T>, x, y, mask, place);
}

// NOLINTBEGIN(bugprone-macro-parentheses): the argument is a type
#define INSTANTIATE(T) \
  template void dropout(const T*, T*, double, std::uint64_t, std::uint64_t, const DropoutPlace&, Stream);
INSTANTIATE(float)
INSTANTIATE(bf16)
INSTANTIATE(f16)
#undef INSTANTIATE
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace trireme::cuda
