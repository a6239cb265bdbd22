// The kernel behind sums over ranks; bytes: cuda/kernels/rank_order.h. A thread takes 16 bytes of the result and loops
// over the rows; a warp reads whole lines of memory.
#include "cuda/kernels/rank_order.h"

#include <type_traits>

#include "cuda/kernels/pieces.h"

namespace trireme::cuda {

namespace {

constexpr int kThreads = 256;

/// The type of running sums and maxima of T. Integers are added as unsigned, so that overflow wraps and is defined.
template <class T, Reduction op>
struct Running {
  using type = float;
};
template <Reduction op>
struct Running<double, op> {
  using type = double;
};
template <>
struct Running<std::int64_t, Reduction::sum> {
  using type = std::uint64_t;
};
template <>
struct Running<std::int64_t, Reduction::max> {
  using type = std::int64_t;
};
template <>
struct Running<std::int32_t, Reduction::sum> {
  using type = std::uint32_t;
};
template <>
struct Running<std::int32_t, Reduction::max> {
  using type = std::int32_t;
};
template <Reduction op>
struct Running<std::uint8_t, op> {
  using type = std::uint8_t;
};

template <class A, class T>
__device__ __forceinline__ A widened(T x) {
  if constexpr (std::is_arithmetic_v<T>)
    return static_cast<A>(x);
  else
    return to_float(x);
}
template <class T, class A>
__device__ __forceinline__ T narrowed(A x) {
  if constexpr (std::is_arithmetic_v<T>)
    return static_cast<T>(x);
  else
    return from_float<T>(x);
}

template <Reduction op, class A>
__device__ __forceinline__ A join(A running, A next) {
  if constexpr (op == Reduction::sum)
    return static_cast<A>(running + next);
  else
    return next > running || next != next ? next : running;  // NOLINT(misc-redundant-expression): x != x finds NaN
}

template <Reduction op, class T>
__global__ void __launch_bounds__(kThreads) combine_kernel(const T* x, int rows, std::int64_t count, T* y) {
  using A = typename Running<T, op>::type;
  constexpr int width = kPackSize<T>;
  const MyPiece mine = my_piece<width>(count);
  if (mine.count == 0) return;
  auto piece = load_piece<width>(x + mine.first, mine.count);
  A running[width];
  TRIREME_UNROLL
  for (int i = 0; i < width; ++i) running[i] = widened<A>(piece.values[i]);
  for (int row = 1; row < rows; ++row) {
    piece = load_piece<width>(x + row * count + mine.first, mine.count);
    TRIREME_UNROLL
    for (int i = 0; i < width; ++i) running[i] = join<op>(running[i], widened<A>(piece.values[i]));
  }
  TRIREME_UNROLL
  for (int i = 0; i < width; ++i) piece.values[i] = narrowed<T>(running[i]);
  store_piece(y + mine.first, piece, mine.count);
}

template <Reduction op, class T>
void combine_typed(const void* x, int rows, std::int64_t count, void* y, Stream stream) {
  if (count == 0) return;
  launch({"combine_in_order", grid_of_pieces(count, kThreads, kPackSize<T>), {kThreads, 1, 1}, 0, stream},
         combine_kernel<op, T>, static_cast<const T*>(x), rows, count, static_cast<T*>(y));
}

}  // namespace

void combine_in_order(DType dtype, Reduction op, const void* x, int rows, std::int64_t count, void* y, Stream stream) {
  visit_any(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (op == Reduction::sum)
      combine_typed<Reduction::sum, T>(x, rows, count, y, stream);
    else
      combine_typed<Reduction::max, T>(x, rows, count, y, stream);
  });
}

}  // namespace trireme::cuda
