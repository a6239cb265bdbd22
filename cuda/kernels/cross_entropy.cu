// Kernels of the cross-entropy; formulas and bytes: cuda/kernels/cross_entropy.h. A block takes a row. The maximum and
// the sum are found in one read (Milakov and Gimelshein, Online normalizer calculation for softmax, 2018).
#include "cuda/kernels/cross_entropy.h"

#include <cmath>

#include "cuda/kernels/pieces.h"

namespace trireme::cuda {

namespace {

constexpr int kThreads = 512;
constexpr int kLossThreads = 256, kTotalThreads = 1024;
constexpr float kLog2E = 1.4426950408889634F;

/// As Max, but a row without columns has the maximum -infinity.
struct Largest {
  __device__ static float join(float a, float b) { return a > b ? a : b; }
  static constexpr float kNeutral = -INFINITY;
};

template <class T>
__global__ void __launch_bounds__(kThreads) statistics_kernel(const __grid_constant__ CrossEntropy<T> p) {
  constexpr int kWidth = kPackSize<T>;
  TRIREME_SHARED(float, scratch, 32);
  const T* const row = p.logits + std::int64_t{blockIdx.x} * p.columns;
  float maximum = Largest::kNeutral, sum_exp = 0, sum = 0;  // of this thread's columns; sum_exp of exp(x - maximum)
  for (int c = kWidth * static_cast<int>(threadIdx.x); c < p.valid; c += kWidth * kThreads) {
    const int count = p.valid - c < kWidth ? p.valid - c : kWidth;
    const auto piece = load_piece<kWidth>(row + c, count);
    float x[kWidth];
    float largest = maximum;
    TRIREME_UNROLL
    for (int i = 0; i < kWidth; ++i) {
      x[i] = i < count ? to_float(piece.values[i]) : -INFINITY;
      largest = Largest::join(largest, x[i]);
      sum += to_float(piece.values[i]);  // beyond count: zeros
    }
    if (largest == -INFINITY) continue;  // only -infinity so far: adds nothing, and would give NaN
    sum_exp *= exp2_fast((maximum - largest) * kLog2E);
    maximum = largest;
    TRIREME_UNROLL
    for (int i = 0; i < kWidth; ++i) sum_exp += exp2_fast((x[i] - maximum) * kLog2E);
  }
  const float row_maximum = reduce_block<Largest>(maximum, scratch);
  const float rescale = maximum == -INFINITY ? 0.0F : exp2_fast((maximum - row_maximum) * kLog2E);
  const float row_sum_exp = reduce_block<Sum>(sum_exp * rescale, scratch);
  const float row_sum = reduce_block<Sum>(sum, scratch);
  if (threadIdx.x != 0) return;
  const std::int64_t target = p.targets[blockIdx.x], local = target - p.first;
  p.maximum[blockIdx.x] = row_maximum;
  p.sum_exp[blockIdx.x] = row_sum_exp;
  p.logit_sum[blockIdx.x] = row_sum;
  p.target_logit[blockIdx.x] = target >= 0 && local >= 0 && local < p.valid ? to_float(row[local]) : 0.0F;
}

/// One thread per row, in f64: there are few rows, and their sum is compared between meshes.
template <class T>
__global__ void __launch_bounds__(kLossThreads)
    losses_kernel(const __grid_constant__ CrossEntropy<T> p, double* losses) {
  const MyPiece mine = my_piece<1>(p.rows);
  if (mine.count == 0) return;
  const std::int64_t r = mine.first;
  const double mean = static_cast<double>(p.logit_sum[r]) / static_cast<double>(p.vocabulary);
  const double expected = (1 - p.smoothing) * static_cast<double>(p.target_logit[r]) + p.smoothing * mean;
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

/// What multiplies softmax, the target's 1, and all real columns: scale, scale (1 - e), scale e / V. In f64, as the
/// scale has to be multiplied by dloss before it is rounded.
struct GradientScales {
  double all, onehot, spread;
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    gradient_kernel(const __grid_constant__ CrossEntropy<T> p, const __grid_constant__ GradientScales s, T* gradients) {
  constexpr int kWidth = kPackSize<T>;
  const double dloss = p.dloss == nullptr ? 1.0 : static_cast<double>(*p.dloss);
  const auto scale = static_cast<float>(s.all * dloss), onehot = static_cast<float>(s.onehot * dloss);
  const auto spread = static_cast<float>(s.spread * dloss);
  const std::int64_t start = std::int64_t{blockIdx.x} * p.columns;
  const std::int64_t target = p.targets[blockIdx.x], local = target - p.first;
  const float maximum = p.maximum[blockIdx.x], factor = scale / p.sum_exp[blockIdx.x];
  for (int c = kWidth * static_cast<int>(threadIdx.x); c < p.columns; c += kWidth * kThreads) {
    const int count = p.columns - c < kWidth ? p.columns - c : kWidth;
    auto piece = load_piece<kWidth>(p.logits + start + c, count);
    TRIREME_UNROLL
    for (int i = 0; i < kWidth; ++i) {
      float gradient = 0;
      if (target >= 0 && c + i < p.valid) {
        gradient = exp2_fast((to_float(piece.values[i]) - maximum) * kLog2E) * factor - spread;
        if (c + i == local) gradient -= onehot;
      }
      piece.values[i] = from_float<T>(gradient);
    }
    store_piece(gradients + start + c, piece, count);
  }
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
  const GradientScales scales{scale, scale * (1 - p.smoothing),
                              scale * p.smoothing / static_cast<double>(p.vocabulary)};
  launch(config("cross_entropy_gradient", p, stream), gradient_kernel<T>, p, scales, gradients);
}

// NOLINTBEGIN(bugprone-macro-parentheses): the argument is a type
#define INSTANTIATE(T)                                                         \
  template void cross_entropy_statistics(const CrossEntropy<T>&, Stream);      \
  template void cross_entropy_losses(const CrossEntropy<T>&, double*, Stream); \
  template void cross_entropy_gradient(const CrossEntropy<T>&, double, T*, Stream);
INSTANTIATE(float)
INSTANTIATE(bf16)
INSTANTIATE(f16)
#undef INSTANTIATE
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace trireme::cuda
