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
  /// Phi(x), by erfc so that the lower tail keeps its digits. For results of 16 bits, erfc(z) exp(z^2) is a polynomial in
  /// t = 1 / (1 + 0.375 z), fitted for z from 0 to 9: its relative error is below 1e-6, as the derivative of GELU, where it
  /// is near 0, is the difference of two larger numbers.
  __host__ __device__ static float normal_distribution(float x) {
    if constexpr (sizeof(Result) != 2) return 0.5F * erfcf(-0.70710678118654752F * x);
    constexpr float c[] = {0.211339408F,  0.215689718F, 0.166661774F, 0.283068713F,
                           -0.129606958F, 0.387944337F, -0.135097628F};
    const float t = reciprocal_fast(1.0F + 0.265165043F * fabsf(x));
    float scaled = c[6];
    TRIREME_UNROLL
    for (int i = 5; i >= 0; --i) scaled = scaled * t + c[i];
    scaled *= t;
    const float lower = 0.5F * bell(x) * scaled;
    return x < 0 ? lower : 1.0F - lower;
  }
  __host__ __device__ static float gelu_derivative(float x) {
    return normal_distribution(x) + x * 0.39894228040143268F * bell(x);
  }
  /// exp(-x^2 / 2).
  __host__ __device__ static float bell(float x) {
    if constexpr (sizeof(Result) == 2) return exp2_fast(-0.72134752044448170F * x * x);
    return expf(-0.5F * x * x);
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
