// Kernels of the cross-entropy; formulas and bytes: cuda/kernels/cross_entropy.h. A block takes a row. The maximum and
// the sum are found in one read (Milakov and Gimelshein, Online normalizer calculation for softmax, 2018).
#include "cuda/kernels/cross_entropy.h"

namespace trireme::cuda {

namespace {

constexpr int kThreads = 512;
constexpr float kLog2E = 1.4426950408889634F;

template <class T>
__device__ bool rows_are_aligned(const CrossEntropy<T>& p) {
  return reinterpret_cast<std::uintptr_t>(p.logits) % 16 == 0 && p.columns % kPackSize<T> == 0;
}

template <class T>
__global__ void __launch_bounds__(kThreads) statistics_kernel(const __grid_constant__ CrossEntropy<T> p) {
  constexpr int kWidth = kPackSize<T>;
  TRIREME_SHARED(float, scratch, 32);
  const T* const row = p.logits + std::int64_t{blockIdx.x} * p.columns;
  const bool aligned = rows_are_aligned(p);
  float maximum = Max::kNeutral, sum = 0;  // of this thread's columns; sum of exp(x - maximum)
  for (int c = kWidth * static_cast<int>(threadIdx.x); c < p.valid; c += kWidth * kThreads) {
    float x[kWidth];
    Pack<T, kWidth> piece = {};
    if (aligned) piece = load_vector<Pack<T, kWidth>>(row + c);
    float largest = maximum;
    TRIREME_UNROLL
    for (int i = 0; i < kWidth; ++i) {
      x[i] = c + i >= p.valid ? -INFINITY : to_float(aligned ? piece.values[i] : row[c + i]);
      largest = Max::join(largest, x[i]);
    }
    sum *= exp2_fast((maximum - largest) * kLog2E);
    maximum = largest;
    TRIREME_UNROLL
    for (int i = 0; i < kWidth; ++i) sum += exp2_fast((x[i] - maximum) * kLog2E);
  }
  const float row_maximum = reduce_block<Max>(maximum, scratch);
  const float row_sum = reduce_block<Sum>(sum * exp2_fast((maximum - row_maximum) * kLog2E), scratch);
  if (threadIdx.x != 0) return;
  const std::int64_t target = p.targets[blockIdx.x], local = target - p.first;
  p.maximum[blockIdx.x] = row_maximum;
  p.sum_exp[blockIdx.x] = row_sum;
  p.target_logit[blockIdx.x] = target >= 0 && local >= 0 && local < p.valid ? to_float(row[local]) : 0.0F;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    gradient_kernel(const __grid_constant__ CrossEntropy<T> p, float scale, float* losses) {
  constexpr int kWidth = kPackSize<T>;
  T* const row = p.logits + std::int64_t{blockIdx.x} * p.columns;
  const bool aligned = rows_are_aligned(p);
  const std::int64_t target = p.targets[blockIdx.x], local = target - p.first;
  const float maximum = p.maximum[blockIdx.x], factor = scale / p.sum_exp[blockIdx.x];
  for (int c = kWidth * static_cast<int>(threadIdx.x); c < p.columns; c += kWidth * kThreads) {
    Pack<T, kWidth> piece = {};
    if (aligned) piece = load_vector<Pack<T, kWidth>>(row + c);
    TRIREME_UNROLL
    for (int i = 0; i < kWidth; ++i) {
      float gradient = 0;
      if (target >= 0 && c + i < p.valid) {
        gradient = exp2_fast((to_float(aligned ? piece.values[i] : row[c + i]) - maximum) * kLog2E) * factor;
        if (c + i == local) gradient -= scale;
      }
      piece.values[i] = from_float<T>(gradient);
      if (!aligned && c + i < p.columns) row[c + i] = piece.values[i];
    }
    if (aligned) store_vector(row + c, piece);
  }
  if (threadIdx.x == 0 && losses != nullptr)
    losses[blockIdx.x] = target < 0 ? 0.0F : logf(p.sum_exp[blockIdx.x]) + maximum - p.target_logit[blockIdx.x];
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
void cross_entropy_gradient(const CrossEntropy<T>& p, float scale, float* losses, Stream stream) {
  if (p.rows > 0) launch(config("cross_entropy_gradient", p, stream), gradient_kernel<T>, p, scale, losses);
}

#define INSTANTIATE(T)                                                    \
  template void cross_entropy_statistics(const CrossEntropy<T>&, Stream); \
  template void cross_entropy_gradient(const CrossEntropy<T>&, float, float*, Stream);
INSTANTIATE(float)
INSTANTIATE(bf16)
INSTANTIATE(f16)
#undef INSTANTIATE

}  // namespace trireme::cuda
