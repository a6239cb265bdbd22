// The unary functions and their derivatives for one number, in f32, for elementwise kernels and epilogues.
// Read next: core/formulas.h, their formulas.
#pragma once

#include <cmath>

#include "core/formulas.h"
#include "cuda/device/device.h"

namespace trireme::cuda {

/// What core/formulas.h asks of a device.
struct Arithmetic {
  __host__ __device__ static float exp(float x) { return expf(x); }
  __host__ __device__ static float log(float x) { return logf(x); }
  __host__ __device__ static float sqrt(float x) { return sqrtf(x); }
  __host__ __device__ static float tanh(float x) { return tanhf(x); }
  __host__ __device__ static float reciprocal(float x) { return reciprocal_fast(x); }
  /// Phi(x), by erfc so that the lower tail keeps its digits.
  __host__ __device__ static float normal_distribution(float x) { return 0.5F * erfcf(-0.70710678118654752F * x); }
  __host__ __device__ static float gelu_derivative(float x) {
    return normal_distribution(x) + x * 0.39894228040143268F * expf(-0.5F * x * x);
  }
  __host__ __device__ static float gelu_tanh_derivative(float x) {
    const float s = sigmoid(Arithmetic(), gelu_tanh_argument(x));
    return s + x * s * (1.0F - s) * 1.5957691216057308F * (1.0F + 3 * 0.044715F * x * x);
  }
};

template <Unary op>
__device__ __forceinline__ float value_of(float x) {
  return Formula<op>::value(Arithmetic(), x);
}

template <Unary op>
__device__ __forceinline__ float derivative_of(float x) {
  return Formula<op>::derivative(Arithmetic(), x);
}

}  // namespace trireme::cuda
