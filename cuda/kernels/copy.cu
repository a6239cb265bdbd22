// Kernels of fill and copy; bytes: cuda/kernels/copy.h. Three forms: both dense, in pieces of 16 bytes; a transpose, in
// tiles through shared memory; anything else, one element per thread.
#include "cuda/kernels/copy.h"

#include <concepts>

#include "cuda/kernels/pieces.h"

namespace trireme::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kTile = 32;                // rows and columns of a transposed tile
constexpr int kTileRows = 8;             // rows of it that the block's threads move at a time
constexpr unsigned kMaxBlocksZ = 65535;  // of a grid

template <class T>
inline constexpr bool is_half = std::same_as<T, bf16> || std::same_as<T, f16>;

/// Converts as the CPU does: the 16-bit formats through float, everything else as in C++.
template <class To, class From>
__device__ __forceinline__ To convert(From x) {
  if constexpr (std::same_as<To, From>)
    return x;
  else if constexpr (is_half<To> && is_half<From>)
    return from_float<To>(to_float(x));
  else if constexpr (is_half<To>)
    return from_float<To>(static_cast<float>(x));
  else if constexpr (is_half<From>)
    return static_cast<To>(to_float(x));
  else
    return static_cast<To>(x);
}

template <class T>
__global__ void __launch_bounds__(kThreads) fill_kernel(T* y, T value, const __grid_constant__ Strided<1> view) {
  constexpr int kWidth = kPackSize<T>;
  const MyPiece mine = my_piece<kWidth>(view.count);
  if (mine.count == 0) return;
  if (view.dims == 1 && view.inner_stride(0) == 1) {
    Pack<T, kWidth> piece;
    TRIREME_UNROLL
    for (int i = 0; i < kWidth; ++i) piece.values[i] = value;
    store_piece(y + mine.first, piece, mine.count);
  } else {
    for (int i = 0; i < mine.count; ++i) y[offsets(view, mine.first + i).of[0]] = value;
  }
}

/// Values that a thread moves in one go: at most 16 bytes on either side.
template <class From, class To>
inline constexpr int kCopyWidth = kPackSize<From> < kPackSize<To> ? kPackSize<From> : kPackSize<To>;

template <class From, class To>
__global__ void __launch_bounds__(kThreads) dense_kernel(const From* x, To* y, std::int64_t count) {
  constexpr int kWidth = kCopyWidth<From, To>;
  const MyPiece mine = my_piece<kWidth>(count);
  if (mine.count == 0) return;
  const auto from = load_piece<kWidth>(x + mine.first, mine.count);
  Pack<To, kWidth> to;
  TRIREME_UNROLL
  for (int i = 0; i < kWidth; ++i) to.values[i] = convert<To>(from.values[i]);
  store_piece(y + mine.first, to, mine.count);
}

/// The inner dim is a multiple of the piece and has stride 1 in both: a row of a slice, say.
template <class From, class To>
__global__ void __launch_bounds__(kThreads) rows_kernel(const From* x, To* y, const __grid_constant__ Strided<2> view) {
  constexpr int kWidth = kCopyWidth<From, To>;
  const MyPiece mine = my_piece<kWidth>(view.count);
  if (mine.count == 0) return;
  const Offsets<2> at = offsets(view, mine.first);
  const auto from = load_piece<kWidth>(x + at.of[0], kWidth);
  Pack<To, kWidth> to;
  TRIREME_UNROLL
  for (int i = 0; i < kWidth; ++i) to.values[i] = convert<To>(from.values[i]);
  store_piece(y + at.of[1], to, kWidth);
}

template <class From, class To>
__global__ void __launch_bounds__(kThreads)
    strided_kernel(const From* x, To* y, const __grid_constant__ Strided<2> view) {
  const MyPiece mine = my_piece<1>(view.count);
  if (mine.count == 0) return;
  const Offsets<2> at = offsets(view, mine.first);
  y[at.of[1]] = convert<To>(x[at.of[0]]);
}

/// x runs along the rows, y along the columns. Blocks [columns / kTile, rows / kTile, the other dims].
struct Transpose {
  std::int64_t rows, columns, x_column, y_row;  ///< x_column, y_row: strides; x's rows and y's columns have 1
  std::int64_t outer;                           ///< matrices
  Strided<2> outer_view;
};

/// The tile has one extra column, so that reading down a column touches every bank once.
template <class From, class To>
__global__ void __launch_bounds__(kThreads)
    transpose_kernel(const From* x, To* y, const __grid_constant__ Transpose t) {
  TRIREME_SHARED(To, tile, kTile * (kTile + 1));  // [column, row]
  const int lane = static_cast<int>(threadIdx.x) % kTile, first = static_cast<int>(threadIdx.x) / kTile;
  const std::int64_t row0 = std::int64_t{blockIdx.y} * kTile, column0 = std::int64_t{blockIdx.x} * kTile;
  for (std::int64_t matrix = blockIdx.z; matrix < t.outer; matrix += gridDim.z) {
    const Offsets<2> at = offsets(t.outer_view, matrix);
    for (int c = first; c < kTile; c += kTileRows)
      if (row0 + lane < t.rows && column0 + c < t.columns)
        tile[c * (kTile + 1) + lane] = convert<To>(x[at.of[0] + row0 + lane + (column0 + c) * t.x_column]);
    sync_threads();
    for (int r = first; r < kTile; r += kTileRows)
      if (row0 + r < t.rows && column0 + lane < t.columns)
        y[at.of[1] + (row0 + r) * t.y_row + column0 + lane] = tile[lane * (kTile + 1) + r];
    sync_threads();
  }
}

/// The dim with stride 1 in x, if y has stride 1 along its last dim; -1: not a transpose.
int transposed_dim(const Strided<2>& view) {
  if (view.inner_stride(1) != 1 || view.inner_stride(0) == 1) return -1;
  for (int dim = 0; dim + 1 < view.dims; ++dim)
    if (view.stride[0][dim] == 1) return dim;
  return -1;
}

Transpose transpose_of(const Strided<2>& view, int dim) {
  const int last = view.dims - 1;
  Transpose t = {view.extent[dim], view.extent[last], view.stride[0][last], view.stride[1][dim], 1, {1, 1, {1}, {}}};
  for (int d = 0, to = 0; d < last; ++d) {
    if (d == dim) continue;
    t.outer *= t.outer_view.extent[to] = view.extent[d];
    for (int k = 0; k < 2; ++k) t.outer_view.stride[k][to] = view.stride[k][d];
    t.outer_view.dims = ++to;
  }
  t.outer_view.count = t.outer;
  return t;
}

template <class From, class To>
void copy_typed(const From* x, To* y, const Strided<2>& view, Stream stream) {
  constexpr int kWidth = kCopyWidth<From, To>;
  const Dim3 threads = {kThreads, 1, 1};
  const bool along_both = view.inner_stride(0) == 1 && view.inner_stride(1) == 1;
  if (view.dims == 1 && along_both) {
    launch({"copy", grid_of_pieces(view.count, kThreads, kWidth), threads, 0, stream}, dense_kernel<From, To>, x, y,
           view.count);
  } else if (along_both && view.inner() % kWidth == 0) {
    launch({"copy", grid_of_pieces(view.count, kThreads, kWidth), threads, 0, stream}, rows_kernel<From, To>, x, y,
           view);
  } else if (const int dim = transposed_dim(view); dim >= 0 && (view.extent[dim] + kTile - 1) / kTile <= kMaxBlocksZ) {
    const Transpose t = transpose_of(view, dim);
    const Dim3 grid = {static_cast<unsigned>((t.columns + kTile - 1) / kTile),
                       static_cast<unsigned>((t.rows + kTile - 1) / kTile),
                       t.outer < kMaxBlocksZ ? static_cast<unsigned>(t.outer) : kMaxBlocksZ};
    launch({"copy", grid, threads, 0, stream}, transpose_kernel<From, To>, x, y, t);
  } else {
    launch({"copy", grid_of_pieces(view.count, kThreads, 1), threads, 0, stream}, strided_kernel<From, To>, x, y, view);
  }
}

}  // namespace

void fill(void* y, DType dtype, double value, const Strided<1>& view, Stream stream) {
  if (view.count == 0) return;
  visit_any(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T converted;
    if constexpr (is_half<T>)
      converted = T(static_cast<float>(value));
    else
      converted = static_cast<T>(value);
    launch({"fill", grid_of_pieces(view.count, kThreads, kPackSize<T>), {kThreads, 1, 1}, 0, stream}, fill_kernel<T>,
           static_cast<T*>(y), converted, view);
  });
}

void copy(const void* x, DType from, void* y, DType to, const Strided<2>& view, Stream stream) {
  if (view.count == 0) return;
  visit_any(from, [&](auto from_tag) {
    visit_any(to, [&](auto to_tag) {
      using From = typename decltype(from_tag)::type;
      using To = typename decltype(to_tag)::type;
      copy_typed(static_cast<const From*>(x), static_cast<To*>(y), view, stream);
    });
  });
}

}  // namespace trireme::cuda
