// Kernels of top_k; bytes: cuda/kernels/top_k.h. A row takes one lane for eight values, so a warp takes four rows of
// 64. The values stay in registers, and in each of k rounds the lanes find the largest remaining value.
// A warp takes a row of more than 256 columns, and reads it in each round.
#include "cuda/kernels/top_k.h"

#include "core/error.h"
#include "cuda/kernels/order_key.h"
#include "cuda/kernels/pieces.h"

namespace trireme::cuda {

namespace {

constexpr int kThreads = 256, kValues = 8;

/// 2^lane_bits lanes per row; each has at most kValues values of it.
template <class T>
__global__ void __launch_bounds__(kThreads)
    top_k_kernel(const T* x, std::int32_t* chosen, std::int64_t rows, int width, int k, int lane_bits) {
  constexpr int kWidth = kPackSize<T>;
  const auto [row, lane, lanes] = my_row_share(lane_bits);
  const int first = lane * kValues, count = row < rows ? width - first : 0;  // may be below 0, or above kValues
  Pack<T, kWidth> pieces[kValues / kWidth];
  TRIREME_UNROLL
  for (int i = 0; i < kValues; i += kWidth)
    pieces[i / kWidth] = load_piece<kWidth>(x + row * width + first + i, count - i);
  std::int64_t keys[kValues];
  TRIREME_UNROLL
  for (int i = 0; i < kValues; ++i)
    keys[i] = i < count ? order_key(to_float(pieces[i / kWidth].values[i % kWidth]), first + i) : kNone;
  std::int64_t last = kAll;
  for (int place = 0; place < k; ++place) {
    std::int64_t best = kNone;
    TRIREME_UNROLL
    for (const std::int64_t key : keys) best = larger_below(last, best, key);
    last = largest_of(best, lanes);
    if (lane == 0 && row < rows) chosen[row * k + place] = column_of(last);
  }
}

/// One warp per row, which it reads in each round.
template <class T>
__global__ void __launch_bounds__(kThreads)
    top_k_long_kernel(const T* x, std::int32_t* chosen, std::int64_t rows, std::int64_t width, std::int64_t k) {
  const auto [row, lane, lanes] = my_row_share(5);
  if (row >= rows) return;  // uniform over the warp
  std::int64_t last = kAll;
  for (std::int64_t place = 0; place < k; ++place) {
    std::int64_t best = kNone;
    for (int c = lane; c < width; c += lanes)
      best = larger_below(last, best, order_key(to_float(x[row * width + c]), c));
    last = largest_of(best, lanes);
    if (lane == 0) chosen[row * k + place] = column_of(last);
  }
}

}  // namespace

template <class T>
void top_k(const T* x, std::int32_t* chosen, std::int64_t rows, std::int64_t width, std::int64_t k, Stream stream) {
  require(k >= 1 && k <= width, "top_k", "{} of {} cannot be chosen", k, width);
  if (rows == 0) return;
  const int lane_bits = lane_bits_of_row(width, kValues);
  const LaunchConfig config = {"top_k", grid_of_pieces(rows << lane_bits, kThreads, 1), {kThreads, 1, 1}, 0, stream};
  if (width <= std::int64_t{kValues} << lane_bits)
    launch(config, top_k_kernel<T>, x, chosen, rows, static_cast<int>(width), static_cast<int>(k), lane_bits);
  else
    launch(config, top_k_long_kernel<T>, x, chosen, rows, width, k);
}

#define INSTANTIATE(T) template void top_k(const T*, std::int32_t*, std::int64_t, std::int64_t, std::int64_t, Stream);
INSTANTIATE(float)
INSTANTIATE(bf16)
INSTANTIATE(f16)
#undef INSTANTIATE

}  // namespace trireme::cuda
