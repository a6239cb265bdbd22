// The kernel of running sums; bytes: cuda/kernels/cumsum.h.
#include "cuda/kernels/cumsum.h"

#include <type_traits>

#include "cuda/kernels/pieces.h"

namespace trireme::cuda {

namespace {

constexpr int kThreads = 128;

/// One thread per column of each matrix.
template <class T>
__global__ void __launch_bounds__(kThreads)
    cumsum_kernel(const T* x, T* y, std::int64_t columns, std::int64_t length, std::int64_t width, bool reverse) {
  const MyPiece mine = my_piece<1>(columns);
  if (mine.count == 0) return;
  const std::int64_t first = mine.first / width * length * width + mine.first % width;
  const std::int64_t step = reverse ? -width : width;
  std::int64_t at = reverse ? first + (length - 1) * width : first;
  // f32 is summed in f64: in f32, the rounding errors of many additions would add up.
  std::conditional_t<std::is_same_v<T, float>, double, float> sum = 0;
  for (std::int64_t i = 0; i < length; ++i, at += step) {
    sum += to_float(x[at]);
    y[at] = from_float<T>(static_cast<float>(sum));
  }
}

}  // namespace

template <class T>
void cumsum(const T* x, T* y, std::int64_t matrices, std::int64_t length, std::int64_t width, bool reverse,
            Stream stream) {
  const std::int64_t columns = matrices * width;
  if (columns * length == 0) return;
  launch({"cumsum", grid_of_pieces(columns, kThreads, 1), {kThreads, 1, 1}, 0, stream}, cumsum_kernel<T>, x, y, columns,
         length, width, reverse);
}

// NOLINTNEXTLINE(bugprone-macro-parentheses): the argument is a type
#define INSTANTIATE(T) template void cumsum(const T*, T*, std::int64_t, std::int64_t, std::int64_t, bool, Stream);
INSTANTIATE(float)
INSTANTIATE(bf16)
INSTANTIATE(f16)
#undef INSTANTIATE

}  // namespace trireme::cuda
