// The unary functions and their derivatives for one number, in f32, for elementwise kernels and epilogues.
// Read next: core/formulas.h, their formulas.
#pragma once

#include <cmath>

#include "core/formulas.h"
#include "cuda/device/device.h"

namespace trireme::cuda {

/// What core/formulas.h asks of a device, for a value that is rounded to Result.
template <class Result>
struct Arithmetic {
  /// For results of 16 bits two instructions do: below 2^-19 of relative error for |x| < 32. expf takes eight.
  __host__ __device__ static float exp(float x) {
    if constexpr (sizeof(Result) == 2) return exp2_fast(1.4426950408889634F * x);
    return expf(x);
  }
  __host__ __device__ static float log(float x) { return logf(x); }
  __host__ __device__ static float sqrt(float x) { return sqrtf(x); }
  __host__ __device__ static float tanh(float x) { return tanhf(x); }
  __host__ __device__ static float reciprocal(float x) { return reciprocal_fast(x); }
  /// Phi(x), by erfc so that the lower tail keeps its digits.
  __host__ __device__ static float normal_distribution(float x) { return 0.5F * erfcf(-0.70710678118654752F * x); }
  __host__ __device__ static float gelu_derivative(float x) {
    return normal_distribution(x) + x * 0.39894228040143268F * exp(-0.5F * x * x);
  }
  __host__ __device__ static float gelu_tanh_derivative(float x) {
    const float s = sigmoid(Arithmetic(), gelu_tanh_argument(x));
    return s + x * s * (1.0F - s) * 1.5957691216057308F * (1.0F + 3 * 0.044715F * x * x);
  }
};

template <Unary op, class Result = float>
__device__ __forceinline__ float value_of(float x) {
  return Formula<op>::value(Arithmetic<Result>(), x);
}

template <Unary op, class Result = float>
__device__ __forceinline__ float derivative_of(float x) {
  return Formula<op>::derivative(Arithmetic<Result>(), x);
}

}  // namespace trireme::cuda
