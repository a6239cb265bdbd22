// Kernels of the cross-entropy; formulas and bytes: cuda/kernels/cross_entropy.h. A block takes a row. The maximum and
// the sum are found in one read (Milakov and Gimelshein, Online normalizer calculation for softmax, 2018).
#include "cuda/kernels/cross_entropy.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "cuda/kernels/pieces.h"

namespace trireme::cuda {

namespace {

constexpr int kThreads = 512;
constexpr int kResident = 4;  // blocks on a multiprocessor
constexpr int kLossThreads = 256, kTotalThreads = 1024;
constexpr int kAhead = 4;  // pieces that a thread asks for at a time, in one pass
constexpr float kLog2E = 1.4426950408889634F;

/// As Max, but a row without columns has the maximum -infinity.
struct Largest {
  __device__ static float join(float a, float b) { return a > b ? a : b; }
  static constexpr float kNeutral = -INFINITY;
};

/// The statistics of the columns that a thread has seen so far; sum_exp: of exp(x - maximum).
template <class T>
struct Statistics {
  static constexpr int kWidth = kPackSize<T>;
  float maximum = Largest::kNeutral, sum_exp = 0, sum = 0;

  /// Adds the first `count` values of a piece; the others are zeros.
  __device__ __forceinline__ void add(const Packed<T, kWidth>& piece, int count) {
    if (count == kWidth)
      add_first<true>(piece, count);
    else
      add_first<false>(piece, count);
  }

 private:
  template <bool Whole>
  __device__ __forceinline__ void add_first(const Packed<T, kWidth>& piece, int count) {
    float x[kWidth];
    float largest = maximum;
    TRIREME_UNROLL
    for (int i = 0; i < kWidth; ++i) {
      const float value = unpacked<T, kWidth>(piece, i);
      x[i] = Whole || i < count ? value : -INFINITY;
      largest = Largest::join(largest, x[i]);
      sum += value;
    }
    if (largest == -INFINITY) return;  // only -infinity so far: adds nothing, and would give NaN
    sum_exp *= exp2_fast((maximum - largest) * kLog2E);
    maximum = largest;
    TRIREME_UNROLL
    for (int i = 0; i < kWidth; ++i) sum_exp += exp2_fast((x[i] - maximum) * kLog2E);
  }
};

template <class T>
__device__ __forceinline__ Packed<T, kPackSize<T>> load_packed(const T* from, int count) {
  return std::bit_cast<Packed<T, kPackSize<T>>>(load_piece<kPackSize<T>>(from, count));
}

/// Joins the statistics of a row's threads and writes them. Every thread gets the row's maximum and sum_exp. No thread
/// returns before the row's logits have been read.
template <class T>
__device__ __forceinline__ Statistics<T> join_row(const CrossEntropy<T>& p, const Statistics<T>& mine, float* scratch) {
  float target_logit = 0;
  if (threadIdx.x == 0) {
    const std::int64_t target = p.targets[blockIdx.x], local = target - p.first;
    if (target >= 0 && local >= 0 && local < p.valid)
      target_logit = to_float(p.logits[std::int64_t{blockIdx.x} * p.columns + local]);
  }
  Statistics<T> row;
  row.maximum = reduce_block<Largest>(mine.maximum, scratch);
  const float rescale = mine.maximum == -INFINITY ? 0.0F : exp2_fast((mine.maximum - row.maximum) * kLog2E);
  row.sum_exp = reduce_block<Sum>(mine.sum_exp * rescale, scratch);
  row.sum = reduce_block<Sum>(mine.sum, scratch);
  if (threadIdx.x == 0) {
    p.maximum[blockIdx.x] = row.maximum;
    p.sum_exp[blockIdx.x] = row.sum_exp;
    p.logit_sum[blockIdx.x] = row.sum;
    p.target_logit[blockIdx.x] = target_logit;
  }
  return row;
}

template <class T>
__global__ void __launch_bounds__(kThreads) statistics_kernel(const __grid_constant__ CrossEntropy<T> p) {
  constexpr int kWidth = kPackSize<T>;
  TRIREME_SHARED(float, scratch, 32);
  const T* const row = p.logits + std::int64_t{blockIdx.x} * p.columns;
  Statistics<T> mine;
  for (int c = kWidth * static_cast<int>(threadIdx.x); c < p.valid; c += kWidth * kThreads) {
    const int count = p.valid - c < kWidth ? p.valid - c : kWidth;
    mine.add(load_packed(row + c, count), count);
  }
  join_row(p, mine, scratch);
}

/// One thread per row, in f64: there are few rows, and their sum is compared between meshes.
template <class T>
__global__ void __launch_bounds__(kLossThreads)
    losses_kernel(const __grid_constant__ CrossEntropy<T> p, double* losses) {
  const MyPiece mine = my_piece<1>(p.rows);
  if (mine.count == 0) return;
  const std::int64_t r = mine.first;
  double expected = (1 - p.smoothing) * static_cast<double>(p.target_logit[r]);
  // Only with smoothing: of a masked class, 0 * -infinity would be NaN.
  if (p.smoothing > 0)
    expected += p.smoothing * (static_cast<double>(p.logit_sum[r]) / static_cast<double>(p.vocabulary));
  const double lse = log(static_cast<double>(p.sum_exp[r])) + static_cast<double>(p.maximum[r]);
  losses[r] = p.targets[r] < 0 ? 0.0 : lse - expected;
}

/// One block: the losses of 65536 rows are 512 KB, which it reads in a few microseconds.
__global__ void __launch_bounds__(kTotalThreads)
    total_kernel(const double* losses, int rows, double scale, float* loss) {
  TRIREME_SHARED(double, sums, kTotalThreads);
  const int thread = static_cast<int>(threadIdx.x);
  double sum = 0;
  for (int r = thread; r < rows; r += kTotalThreads) sum += losses[r];
  sums[thread] = sum;
  sync_threads();
  for (int half = kTotalThreads / 2; half > 0; half /= 2) {
    if (thread < half) sums[thread] += sums[thread + half];
    sync_threads();
  }
  if (thread == 0) *loss = static_cast<float>(scale * sums[0]);
}

/// What multiplies softmax, the target's 1, and all real columns: scale, scale (1 - e), scale e / V. In f64, because
/// they are multiplied by dloss before they are rounded.
struct Scales {
  double scale, onehot, spread;
};

/// Turns pieces of a row's logits into gradients.
template <class T>
struct RowGradient {
  static constexpr int kWidth = kPackSize<T>;
  int local;  ///< the target's column; -1: not in this slice
  int valid;  ///< 0 if the row is ignored
  float maximum, factor, onehot, spread;

  __device__ __forceinline__ RowGradient(const CrossEntropy<T>& p, const Scales& scales, float row_maximum,
                                         float sum_exp)
      : maximum(row_maximum) {
    const double dloss = p.dloss == nullptr ? 1.0 : static_cast<double>(*p.dloss);
    factor = static_cast<float>(scales.scale * dloss) / sum_exp;
    onehot = static_cast<float>(scales.onehot * dloss);
    spread = static_cast<float>(scales.spread * dloss);
    const std::int64_t target = p.targets[blockIdx.x], column = target - p.first;
    local = column >= 0 && column < p.valid ? static_cast<int>(column) : -1;
    valid = target >= 0 ? p.valid : 0;
  }
  /// `c`: the piece's first column.
  __device__ __forceinline__ Packed<T, kWidth> of(const Packed<T, kWidth>& piece, int c) const {
    return c + kWidth <= valid ? of_first<true>(piece, c) : of_first<false>(piece, c);
  }

 private:
  /// Whole: all columns of the piece are valid. The target's piece is rare, so it has a branch of its own.
  template <bool Whole>
  __device__ __forceinline__ Packed<T, kWidth> of_first(const Packed<T, kWidth>& piece, int c) const {
    float gradient[kWidth];
    TRIREME_UNROLL
    for (int i = 0; i < kWidth; ++i) {
      const float value = exp2_fast((unpacked<T, kWidth>(piece, i) - maximum) * kLog2E) * factor - spread;
      gradient[i] = Whole || c + i < valid ? value : 0.0F;
    }
    if (valid > 0 && local >= c && local < c + kWidth) {
      TRIREME_UNROLL
      for (int i = 0; i < kWidth; ++i)
        if (c + i == local) gradient[i] -= onehot;
    }
    return packed<T>(gradient);
  }
};

template <class T>
__device__ __forceinline__ void store_packed(T* to, const Packed<T, kPackSize<T>>& piece, int count) {
  store_piece(to, std::bit_cast<Pack<T, kPackSize<T>>>(piece), count);
}

template <class T>
__global__ void __launch_bounds__(kThreads, kResident)
    gradient_kernel(const __grid_constant__ CrossEntropy<T> p, Scales scales, T* gradients) {
  constexpr int kWidth = kPackSize<T>;
  const std::int64_t start = std::int64_t{blockIdx.x} * p.columns;
  const RowGradient<T> gradient(p, scales, p.maximum[blockIdx.x], p.sum_exp[blockIdx.x]);
  for (int c = kWidth * static_cast<int>(threadIdx.x); c < p.columns; c += kWidth * kThreads) {
    const int count = p.columns - c < kWidth ? p.columns - c : kWidth;
    store_packed(gradients + start + c, gradient.of(load_packed(p.logits + start + c, count), c), count);
  }
}

/// Both passes over a row, whose first `kept` columns stay in shared memory in between. A thread has the same columns
/// in both, so no barrier is needed for them; it asks for kAhead pieces at a time.
template <class T>
__global__ void __launch_bounds__(kThreads)
    one_pass_kernel(const __grid_constant__ CrossEntropy<T> p, Scales scales, int kept, T* gradients) {
  constexpr int kWidth = kPackSize<T>, kStep = kWidth * kThreads;
  TRIREME_SHARED(float, scratch, 32);
  TRIREME_DYNAMIC_SHARED(memory, 16);
  T* const kept_row = reinterpret_cast<T*>(memory);
  const std::int64_t start = std::int64_t{blockIdx.x} * p.columns;
  const int first = kWidth * static_cast<int>(threadIdx.x);
  const auto count_at = [](int c, int end) { return c >= end ? 0 : end - c < kWidth ? end - c : kWidth; };
  Statistics<T> mine;
  for (int begin = first; begin < p.valid; begin += kAhead * kStep) {
    Packed<T, kWidth> pieces[kAhead];
    TRIREME_UNROLL
    for (int j = 0; j < kAhead; ++j)
      pieces[j] = load_packed(p.logits + start + begin + j * kStep, count_at(begin + j * kStep, p.valid));
    TRIREME_UNROLL
    for (int j = 0; j < kAhead; ++j) {
      const int c = begin + j * kStep, count = count_at(c, p.valid);
      if (count == 0) break;
      if (c < kept) store_vector(kept_row + c, pieces[j]);
      mine.add(pieces[j], count);
    }
  }
  const Statistics<T> row = join_row(p, mine, scratch);
  const RowGradient<T> gradient(p, scales, row.maximum, row.sum_exp);
  for (int c = first; c < p.columns; c += kStep) {
    const int count = count_at(c, p.columns);
    const auto piece =
        c < kept ? load_vector<Packed<T, kWidth>>(kept_row + c) : load_packed(p.logits + start + c, count);
    store_packed(gradients + start + c, gradient.of(piece, c), count);
  }
}

template <class T>
Scales scales_of(const CrossEntropy<T>& p, double scale) {
  return {scale, scale * (1 - p.smoothing), scale * p.smoothing / static_cast<double>(p.vocabulary)};
}

template <class T>
LaunchConfig config(const char* name, const CrossEntropy<T>& p, Stream stream) {
  return {name, {static_cast<unsigned>(p.rows), 1, 1}, {kThreads, 1, 1}, 0, stream};
}

}  // namespace

template <class T>
void cross_entropy_statistics(const CrossEntropy<T>& p, Stream stream) {
  if (p.rows > 0) launch(config("cross_entropy_statistics", p, stream), statistics_kernel<T>, p);
}

template <class T>
void cross_entropy_losses(const CrossEntropy<T>& p, double* losses, Stream stream) {
  const Dim3 threads = {kLossThreads, 1, 1};
  if (p.rows > 0)
    launch({"cross_entropy_losses", grid_of_pieces(p.rows, kLossThreads, 1), threads, 0, stream}, losses_kernel<T>, p,
           losses);
}

void cross_entropy_total(const double* losses, int rows, double scale, float* loss, Stream stream) {
  launch({"cross_entropy_total", {1, 1, 1}, {kTotalThreads, 1, 1}, 0, stream}, total_kernel, losses, rows, scale, loss);
}

template <class T>
void cross_entropy_gradient(const CrossEntropy<T>& p, double scale, T* gradients, Stream stream) {
  if (p.rows == 0) return;
  launch(config("cross_entropy_gradient", p, stream), gradient_kernel<T>, p, scales_of(p, scale), gradients);
}

template <class T>
void cross_entropy_one_pass(const CrossEntropy<T>& p, double scale, T* gradients, Stream stream) {
  if (p.rows == 0) return;
  constexpr int kWidth = kPackSize<T>;
  // Two blocks fit into a multiprocessor. Each has `scratch`, and CUDA takes 1 KB.
  const int most = static_cast<int>(device_limits().shared_per_block / 2 - 1024 - 128) / 16 * kWidth;
  const int kept = std::min((p.valid + kWidth - 1) / kWidth * kWidth, most);
  LaunchConfig c = config("cross_entropy_one_pass", p, stream);
  c.dynamic_shared = static_cast<std::size_t>(kept) * sizeof(T);
  launch(c, one_pass_kernel<T>, p, scales_of(p, scale), kept, gradients);
}

// NOLINTBEGIN(bugprone-macro-parentheses): the argument is a type
#define INSTANTIATE(T)                                                              \
  template void cross_entropy_statistics(const CrossEntropy<T>&, Stream);           \
  template void cross_entropy_losses(const CrossEntropy<T>&, double*, Stream);      \
  template void cross_entropy_gradient(const CrossEntropy<T>&, double, T*, Stream); \
  template void cross_entropy_one_pass(const CrossEntropy<T>&, double, T*, Stream);
INSTANTIATE(float)
INSTANTIATE(bf16)
INSTANTIATE(f16)
#undef INSTANTIATE
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace trireme::cuda
