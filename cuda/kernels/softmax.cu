// Kernels of softmax; bytes: cuda/kernels/softmax.h. A warp takes a row of up to kWarpWidth columns and keeps it in
// registers. A block takes a longer row and reads it twice: maximum and sum come from one read (Milakov and Gimelshein,
// Online normalizer calculation, 2018).
#include "cuda/kernels/softmax.h"

#include <cmath>

#include "cuda/kernels/pieces.h"

namespace trireme::cuda {

namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kWarpWidth = 1024;

/// The Lanes threads of a row, of which this is `lane`; `row` may be beyond the last, in a ragged block.
template <int Lanes>
struct RowTeam {
  std::int64_t row;
  int lane;
  float* scratch;  // [32] shared

  template <class Op>
  __device__ __forceinline__ float reduce(float value) const {
    if constexpr (Lanes == 32)
      return reduce_warp<Op>(value);
    else
      return reduce_block<Op>(value, scratch);
  }
};

template <int Lanes>
__device__ __forceinline__ RowTeam<Lanes> my_team(float* scratch) {
  const int thread = static_cast<int>(threadIdx.x);
  return {std::int64_t{blockIdx.x} * (kThreads / Lanes) + thread / Lanes, thread % Lanes, scratch};
}

/// This lane's k-th piece of a row cut into pieces of N: where it begins, and how many values of the row are left there
/// (negative beyond the row).
struct LanePiece {
  int first, count;
};
template <int N>
__device__ __forceinline__ LanePiece lane_piece(int k, int lane, int width) {
  const int first = (k * 32 + lane) * N;
  return {first, width - first};
}

/// A row of up to 32 Pieces pieces, in the registers of a warp: one read, and one exponential a value.
template <int Pieces, class T>
__global__ void __launch_bounds__(kThreads) softmax_warp_kernel(const T* x, T* y, std::int64_t rows, int width) {
  constexpr int kWidth = kPackSize<T>;
  const RowTeam<32> team = my_team<32>(nullptr);
  if (team.row >= rows) return;  // uniform over the warp
  Pack<T, kWidth> pieces[Pieces];
  TRIREME_UNROLL
  for (int k = 0; k < Pieces; ++k) {
    const auto mine = lane_piece<kWidth>(k, team.lane, width);
    pieces[k] = load_piece<kWidth>(x + team.row * width + mine.first, mine.count);
  }
  float values[Pieces * kWidth], top = Max::kNeutral, sum = 0;
  TRIREME_UNROLL
  for (int i = 0; i < Pieces * kWidth; ++i) {
    const bool exists = i % kWidth < lane_piece<kWidth>(i / kWidth, team.lane, width).count;
    values[i] = exists ? to_float(pieces[i / kWidth].values[i % kWidth]) : -INFINITY;
    top = fmaxf(top, values[i]);
  }
  top = reduce_warp<Max>(top);
  TRIREME_UNROLL
  for (int i = 0; i < Pieces * kWidth; ++i) {
    values[i] = expf(values[i] - top);
    sum += values[i];
  }
  const float scale = 1.0F / reduce_warp<Sum>(sum);
  TRIREME_UNROLL
  for (int k = 0; k < Pieces; ++k) {
    const auto mine = lane_piece<kWidth>(k, team.lane, width);
    TRIREME_UNROLL
    for (int i = 0; i < kWidth; ++i) pieces[k].values[i] = from_float<T>(values[k * kWidth + i] * scale);
    store_piece(y + team.row * width + mine.first, pieces[k], mine.count);
  }
}

/// One block per row.
template <class T>
__global__ void __launch_bounds__(kThreads) softmax_kernel(const T* x, T* y, std::int64_t width) {
  constexpr int kWidth = kPackSize<T>;
  TRIREME_SHARED(float, scratch, 32);
  const RowTeam<kThreads> team = my_team<kThreads>(scratch);
  const T* const from = x + team.row * width;
  T* const to = y + team.row * width;
  float top = -INFINITY, sum = 0;  // of this thread's columns; sum of exp(x - top)
  for (std::int64_t c = team.lane * kWidth; c < width; c += kThreads * kWidth) {
    const int count = width - c < kWidth ? static_cast<int>(width - c) : kWidth;
    const auto piece = load_piece<kWidth>(from + c, count);
    float largest = top;
    TRIREME_UNROLL
    for (int i = 0; i < kWidth; ++i)
      if (i < count) largest = fmaxf(largest, to_float(piece.values[i]));
    if (largest == -INFINITY) continue;  // only -infinity so far: adds nothing, and would give NaN
    sum *= expf(top - largest);
    top = largest;
    TRIREME_UNROLL
    for (int i = 0; i < kWidth; ++i)
      if (i < count) sum += expf(to_float(piece.values[i]) - top);
  }
  const float row_top = team.reduce<Max>(fmaxf(top, Max::kNeutral));
  const float scale = 1.0F / team.reduce<Sum>(sum * expf(top - row_top));
  for (std::int64_t c = team.lane * kWidth; c < width; c += kThreads * kWidth) {
    const int count = width - c < kWidth ? static_cast<int>(width - c) : kWidth;
    auto piece = load_piece<kWidth>(from + c, count);
    TRIREME_UNROLL
    for (int i = 0; i < kWidth; ++i) piece.values[i] = from_float<T>(expf(to_float(piece.values[i]) - row_top) * scale);
    store_piece(to + c, piece, count);
  }
}

template <int Lanes, class T>
__global__ void __launch_bounds__(kThreads)
    softmax_backward_kernel(const T* y, const T* dy, T* dx, std::int64_t rows, std::int64_t width) {
  constexpr int kWidth = kPackSize<T>;
  TRIREME_SHARED(float, scratch, 32);
  const RowTeam<Lanes> team = my_team<Lanes>(scratch);
  if (team.row >= rows) return;
  const std::int64_t at = team.row * width;
  float sum = 0;
  for (std::int64_t c = team.lane * kWidth; c < width; c += Lanes * kWidth) {
    const int count = width - c < kWidth ? static_cast<int>(width - c) : kWidth;
    const auto p = load_piece<kWidth>(y + at + c, count), d = load_piece<kWidth>(dy + at + c, count);
    TRIREME_UNROLL
    for (int i = 0; i < kWidth; ++i) sum += to_float(p.values[i]) * to_float(d.values[i]);  // beyond count: zeros
  }
  const float mean = team.template reduce<Sum>(sum);
  for (std::int64_t c = team.lane * kWidth; c < width; c += Lanes * kWidth) {
    const int count = width - c < kWidth ? static_cast<int>(width - c) : kWidth;
    const auto p = load_piece<kWidth>(y + at + c, count);
    auto d = load_piece<kWidth>(dy + at + c, count);
    TRIREME_UNROLL
    for (int i = 0; i < kWidth; ++i)
      d.values[i] = from_float<T>(to_float(p.values[i]) * (to_float(d.values[i]) - mean));
    store_piece(dx + at + c, d, count);
  }
}

LaunchConfig config(const char* name, std::int64_t rows, int lanes, Stream stream) {
  return {name, grid_of_pieces(rows * lanes, kThreads, 1), {kThreads, 1, 1}, 0, stream};
}

}  // namespace

template <class T>
void softmax(const T* x, T* y, std::int64_t rows, std::int64_t width, Stream stream) {
  if (rows * width == 0) return;
  constexpr int piece = 32 * kPackSize<T>, most = static_cast<int>(kWarpWidth) / piece;
  if (width <= kWarpWidth)
    launch(config("softmax", rows, 32, stream),
           width <= piece ? softmax_warp_kernel<1, T> : softmax_warp_kernel<most, T>, x, y, rows,
           static_cast<int>(width));
  else
    launch(config("softmax", rows, kThreads, stream), softmax_kernel<T>, x, y, width);
}

template <class T>
void softmax_backward(const T* y, const T* dy, T* dx, std::int64_t rows, std::int64_t width, Stream stream) {
  if (rows * width == 0) return;
  if (width <= kWarpWidth)
    launch(config("softmax_backward", rows, 32, stream), softmax_backward_kernel<32, T>, y, dy, dx, rows, width);
  else
    launch(config("softmax_backward", rows, kThreads, stream), softmax_backward_kernel<kThreads, T>, y, dy, dx, rows,
           width);
}

// NOLINTBEGIN(bugprone-macro-parentheses): the argument is a type
#define INSTANTIATE(T)                                                     \
  template void softmax(const T*, T*, std::int64_t, std::int64_t, Stream); \
  template void softmax_backward(const T*, const T*, T*, std::int64_t, std::int64_t, Stream);
INSTANTIATE(float)
INSTANTIATE(bf16)
INSTANTIATE(f16)
#undef INSTANTIATE
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace trireme::cuda
