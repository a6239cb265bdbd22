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
  __host__ __device__ static float sin(float x) { return sinf(x); }
  __host__ __device__ static float cos(float x) { return cosf(x); }
  __host__ __device__ static float tanh(float x) { return tanhf(x); }
  __host__ __device__ static float reciprocal(float x) { return reciprocal_fast(x); }
  /// Phi(x), by erfc so that the lower tail keeps its digits.
  __host__ __device__ static float normal_distribution(float x) {
    if constexpr (sizeof(Result) != 2) return 0.5F * erfcf(-0.70710678118654752F * x);
    const float lower = tail(x);
    return x < 0 ? lower : 1.0F - lower;
  }
  /// x Phi(x), for results of 16 bits: with the tail, both signs of x take the same instructions.
  __host__ __device__ static float gelu(float x) { return fmaxf(x, 0.0F) - fabsf(x) * tail(x); }
  /// Phi(-|x|), for results of 16 bits. With z = |x| / sqrt(2), erfc(z) exp(z^2) / 2 is a polynomial in
  /// t = 1 / (1 + 0.375 z), fitted for z from 0 to 9: its relative error is below 1e-6, as the derivative of GELU,
  /// where it is near 0, is the difference of two larger numbers.
  __host__ __device__ static float tail(float x) {
    constexpr float c[] = {0.105669704F,  0.107844859F,  0.083330887F, 0.1415343565F,
                           -0.064803479F, 0.1939721685F, -0.067548814F};
    const float t = reciprocal_fast(1.0F + 0.265165043F * fabsf(x));
    float scaled = c[6];
    TRIREME_UNROLL
    for (int i = 5; i >= 0; --i) scaled = scaled * t + c[i];
    return bell(x) * (t * scaled);
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
  if constexpr (op == Unary::gelu && sizeof(Result) == 2) return Arithmetic<Result>::gelu(x);
  return Formula<op>::value(Arithmetic<Result>(), x);
}

template <Unary op, class Result = float>
__device__ __forceinline__ float derivative_of(float x) {
  return Formula<op>::derivative(Arithmetic<Result>(), x);
}

}  // namespace trireme::cuda
