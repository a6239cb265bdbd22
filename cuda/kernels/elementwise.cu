// Elementwise kernels; bytes: cuda/kernels/elementwise.h. A thread takes a piece of 16 bytes. Each operation is its own
// kernel, so that it uses only the registers of that operation.
// Read next: cuda/kernels/copy.cu.
#include "cuda/kernels/elementwise.h"

#include <algorithm>

#include "cuda/kernels/functions.h"
#include "cuda/kernels/pieces.h"
#include "cuda/kernels/widened.h"

namespace trireme::cuda {

namespace {

constexpr int kThreads = 256;
constexpr unsigned kMaxBlocksY = 2048;  // more rows are looped over: enough to fill any GPU
constexpr unsigned kMultiplyBlocks = 528;

template <Unary op, class T>
__global__ void __launch_bounds__(kThreads) unary_kernel(const T* x, T* y, std::int64_t count) {
  constexpr int kWidth = kPackSize<T>;
  const MyPiece mine = my_piece<kWidth>(count);
  if (mine.count == 0) return;
  auto piece = load_piece<kWidth>(x + mine.first, mine.count);
  TRIREME_UNROLL
  for (int i = 0; i < kWidth; ++i) piece.values[i] = from_float<T>(value_of<op, T>(to_float(piece.values[i])));
  store_piece(y + mine.first, piece, mine.count);
}

template <Unary op, class T>
__global__ void __launch_bounds__(kThreads) unary_backward_kernel(const T* x, const T* dy, T* dx, std::int64_t count) {
  constexpr int kWidth = kPackSize<T>;
  const MyPiece mine = my_piece<kWidth>(count);
  if (mine.count == 0) return;
  const auto at = load_piece<kWidth>(x + mine.first, mine.count);
  auto piece = load_piece<kWidth>(dy + mine.first, mine.count);
  TRIREME_UNROLL
  for (int i = 0; i < kWidth; ++i)
    piece.values[i] = from_float<T>(derivative_of<op, T>(to_float(at.values[i])) * to_float(piece.values[i]));
  store_piece(dx + mine.first, piece, mine.count);
}

/// N values of an operand, `stride` apart: one load if they are neighbours.
template <int N, class T>
__device__ __forceinline__ Pack<T, N> load_run(const T* from, std::int64_t stride, int count) {
  if (stride == 1) return load_piece<N>(from, count);
  Pack<T, N> piece = {};
  TRIREME_UNROLL
  for (int i = 0; i < N; ++i)
    if (i < count) piece.values[i] = from[i * stride];
  return piece;
}

/// For views whose pieces each lie within one run of the inner dim: offsets are computed once a piece.
template <Binary op, class T>
__global__ void __launch_bounds__(kThreads)
    binary_kernel(const T* a, const T* b, T* y, const __grid_constant__ Strided<2> view) {
  constexpr int kWidth = kPackSize<T>;
  const MyPiece mine = my_piece<kWidth>(view.count);
  if (mine.count == 0) return;
  const Offsets<2> at = offsets(view, mine.first);
  auto left = load_run<kWidth>(a + at.of[0], view.inner_stride(0), mine.count);
  const auto right = load_run<kWidth>(b + at.of[1], view.inner_stride(1), mine.count);
  TRIREME_UNROLL
  for (int i = 0; i < kWidth; ++i)
    left.values[i] = narrowed<T>(combine<op>(widened(left.values[i]), widened(right.values[i])));
  store_piece(y + mine.first, left, mine.count);
}

/// For any other view: one element per thread.
template <Binary op, class T>
__global__ void __launch_bounds__(kThreads)
    binary_ragged_kernel(const T* a, const T* b, T* y, const __grid_constant__ Strided<2> view) {
  const MyPiece mine = my_piece<1>(view.count);
  if (mine.count == 0) return;
  const Offsets<2> at = offsets(view, mine.first);
  y[mine.first] = narrowed<T>(combine<op>(widened(a[at.of[0]]), widened(b[at.of[1]])));
}

/// As binary_kernel, with pieces of 1 for views whose inner dim is no multiple of a piece.
template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    where_kernel(const T* mask, const T* a, const T* b, T* y, const __grid_constant__ Strided<3> view) {
  const MyPiece mine = my_piece<kWidth>(view.count);
  if (mine.count == 0) return;
  const Offsets<3> at = offsets(view, mine.first);
  const auto chosen = load_run<kWidth>(mask + at.of[0], view.inner_stride(0), mine.count);
  auto left = load_run<kWidth>(a + at.of[1], view.inner_stride(1), mine.count);
  const auto right = load_run<kWidth>(b + at.of[2], view.inner_stride(2), mine.count);
  TRIREME_UNROLL
  for (int i = 0; i < kWidth; ++i)
    if (widened(chosen.values[i]) == 0) left.values[i] = right.values[i];
  store_piece(y + mine.first, left, mine.count);
}

template <class X, class Y>
inline constexpr int kAxpbyWidth = kPackSize<X> < kPackSize<Y> ? kPackSize<X> : kPackSize<Y>;

template <class X, class Y>
__global__ void __launch_bounds__(kThreads)
    axpby_kernel(accumulate_t<Y> p, const X* x, accumulate_t<Y> q, Y* y, std::int64_t count) {
  using A = accumulate_t<Y>;
  constexpr int kWidth = kAxpbyWidth<X, Y>;
  const MyPiece mine = my_piece<kWidth>(count);
  if (mine.count == 0) return;
  const auto from = load_piece<kWidth>(x + mine.first, mine.count);
  Pack<Y, kWidth> to = {};
  if (q != 0) to = load_piece<kWidth>(y + mine.first, mine.count);
  TRIREME_UNROLL
  for (int i = 0; i < kWidth; ++i) {
    const A scaled = p * static_cast<A>(widened(from.values[i]));
    to.values[i] = narrowed<Y>(q != 0 ? scaled + q * widened(to.values[i]) : scaled);
  }
  store_piece(y + mine.first, to, mine.count);
}

/// The factor is usually 1, and then the time is that of starting the blocks. So there are few, and they loop.
template <class T>
__global__ void __launch_bounds__(kThreads) multiply_by_kernel(const float* factor, T* x, std::int64_t count) {
  constexpr int kWidth = kPackSize<T>;
  const float value = *factor;
  if (value == 1) return;
  const std::int64_t step = std::int64_t{kWidth} * kThreads * gridDim.x;
  for (std::int64_t at = my_piece<kWidth>(count).first; at < count; at += step) {
    const int left = count - at < kWidth ? static_cast<int>(count - at) : kWidth;
    auto piece = load_piece<kWidth>(x + at, left);
    TRIREME_UNROLL
    for (int i = 0; i < kWidth; ++i) piece.values[i] = narrowed<T>(value * widened(piece.values[i]));
    store_piece(x + at, piece, left);
  }
}

/// Blocks [pieces of a row, rows]; blocks loop over rows beyond kMaxBlocksY.
template <class T>
__global__ void __launch_bounds__(kThreads) swiglu_kernel(const T* x, T* y, std::int64_t rows, std::int64_t width) {
  constexpr int kWidth = kPackSize<T>;
  const MyPiece mine = my_piece<kWidth>(width);
  if (mine.count == 0) return;
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const T* const gate = x + row * 2 * width + mine.first;
    auto g = load_piece<kWidth>(gate, mine.count);
    const auto u = load_piece<kWidth>(gate + width, mine.count);
    TRIREME_UNROLL
    for (int i = 0; i < kWidth; ++i)
      g.values[i] = from_float<T>(value_of<Unary::silu, T>(to_float(g.values[i])) * to_float(u.values[i]));
    store_piece(y + row * width + mine.first, g, mine.count);
  }
}

/// With s = sigmoid(gate): dgate = dy up s (1 + gate (1 - s)), dup = dy gate s. Both are read before either is written.
template <class T>
__global__ void __launch_bounds__(kThreads)
    swiglu_backward_kernel(const T* x, const T* dy, T* dx, std::int64_t rows, std::int64_t width) {
  constexpr int kWidth = kPackSize<T>;
  const MyPiece mine = my_piece<kWidth>(width);
  if (mine.count == 0) return;
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const std::int64_t at = row * 2 * width + mine.first;
    auto gate = load_piece<kWidth>(x + at, mine.count), up = load_piece<kWidth>(x + at + width, mine.count);
    const auto out = load_piece<kWidth>(dy + row * width + mine.first, mine.count);
    TRIREME_UNROLL
    for (int i = 0; i < kWidth; ++i) {
      const float g = to_float(gate.values[i]), u = to_float(up.values[i]), d = to_float(out.values[i]);
      const float s = value_of<Unary::sigmoid, T>(g);
      gate.values[i] = from_float<T>(d * u * s * (1.0F + g * (1.0F - s)));
      up.values[i] = from_float<T>(d * g * s);
    }
    store_piece(dx + at, gate, mine.count);
    store_piece(dx + at + width, up, mine.count);
  }
}

LaunchConfig config(const char* name, std::int64_t count, int per_thread, Stream stream) {
  return {name, grid_of_pieces(count, kThreads, per_thread), {kThreads, 1, 1}, 0, stream};
}

template <class T>
LaunchConfig row_config(const char* name, std::int64_t rows, std::int64_t width, Stream stream) {
  LaunchConfig c = config(name, width, kPackSize<T>, stream);
  c.grid.y = rows < kMaxBlocksY ? static_cast<unsigned>(rows) : kMaxBlocksY;
  return c;
}

}  // namespace

template <class T>
void unary(Unary op, const T* x, T* y, std::int64_t count, Stream stream) {
  if (count == 0) return;
  visit(op, [&](auto chosen) {
    launch(config("unary", count, kPackSize<T>, stream), unary_kernel<decltype(chosen)::value, T>, x, y, count);
  });
}

template <class T>
void unary_backward(Unary op, const T* x, const T* dy, T* dx, std::int64_t count, Stream stream) {
  if (count == 0) return;
  visit(op, [&](auto chosen) {
    launch(config("unary_backward", count, kPackSize<T>, stream), unary_backward_kernel<decltype(chosen)::value, T>, x,
           dy, dx, count);
  });
}

template <class T>
void binary(Binary op, const T* a, const T* b, T* y, const Strided<2>& view, Stream stream) {
  if (view.count == 0) return;
  const bool whole = view.dims == 1 || view.inner() % kPackSize<T> == 0;
  visit(op, [&](auto chosen) {
    constexpr Binary chosen_op = decltype(chosen)::value;
    launch(config("binary", view.count, whole ? kPackSize<T> : 1, stream),
           whole ? binary_kernel<chosen_op, T> : binary_ragged_kernel<chosen_op, T>, a, b, y, view);
  });
}

template <class T>
void where(const T* mask, const T* a, const T* b, T* y, const Strided<3>& view, Stream stream) {
  if (view.count == 0) return;
  const bool whole = view.dims == 1 || view.inner() % kPackSize<T> == 0;
  launch(config("where", view.count, whole ? kPackSize<T> : 1, stream),
         whole ? where_kernel<kPackSize<T>, T> : where_kernel<1, T>, mask, a, b, y, view);
}

template <class X, class Y>
void axpby(accumulate_t<Y> p, const X* x, accumulate_t<Y> q, Y* y, std::int64_t count, Stream stream) {
  if (count == 0) return;
  launch(config("axpby", count, kAxpbyWidth<X, Y>, stream), axpby_kernel<X, Y>, p, x, q, y, count);
}

template <class T>
void multiply_by(const float* factor, T* x, std::int64_t count, Stream stream) {
  if (count == 0) return;
  LaunchConfig c = config("multiply_by", count, kPackSize<T>, stream);
  c.grid.x = std::min(c.grid.x, kMultiplyBlocks);
  launch(c, multiply_by_kernel<T>, factor, x, count);
}

template <class T>
void swiglu(const T* x, T* y, std::int64_t rows, std::int64_t width, Stream stream) {
  if (rows * width > 0) launch(row_config<T>("swiglu", rows, width, stream), swiglu_kernel<T>, x, y, rows, width);
}

template <class T>
void swiglu_backward(const T* x, const T* dy, T* dx, std::int64_t rows, std::int64_t width, Stream stream) {
  if (rows * width > 0)
    launch(row_config<T>("swiglu_backward", rows, width, stream), swiglu_backward_kernel<T>, x, dy, dx, rows, width);
}

// NOLINTBEGIN(bugprone-macro-parentheses): the argument is a type
#define INSTANTIATE_ARITHMETIC(T)                                                                 \
  template void binary(Binary, const T*, const T*, T*, const Strided<2>&, Stream);                \
  template void where(const T*, const T*, const T*, T*, const Strided<3>&, Stream);               \
  template void axpby(accumulate_t<T>, const double*, accumulate_t<T>, T*, std::int64_t, Stream); \
  template void axpby(accumulate_t<T>, const float*, accumulate_t<T>, T*, std::int64_t, Stream);  \
  template void axpby(accumulate_t<T>, const bf16*, accumulate_t<T>, T*, std::int64_t, Stream);   \
  template void axpby(accumulate_t<T>, const f16*, accumulate_t<T>, T*, std::int64_t, Stream);
#define INSTANTIATE(T)                                                               \
  INSTANTIATE_ARITHMETIC(T)                                                          \
  template void unary(Unary, const T*, T*, std::int64_t, Stream);                    \
  template void unary_backward(Unary, const T*, const T*, T*, std::int64_t, Stream); \
  template void multiply_by(const float*, T*, std::int64_t, Stream);                 \
  template void swiglu(const T*, T*, std::int64_t, std::int64_t, Stream);            \
  template void swiglu_backward(const T*, const T*, T*, std::int64_t, std::int64_t, Stream);
INSTANTIATE_ARITHMETIC(double)
INSTANTIATE(float)
INSTANTIATE(bf16)
INSTANTIATE(f16)
#undef INSTANTIATE
#undef INSTANTIATE_ARITHMETIC
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace trireme::cuda
