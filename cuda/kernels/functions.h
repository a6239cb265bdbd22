// The unary functions and their derivatives for one number, in f32, for elementwise kernels and epilogues. Also the
// arithmetic of two numbers, in f32 or f64.
#pragma once

#include <cmath>

#include "core/kernels.h"
#include "cuda/device/device.h"

namespace trireme::cuda {

__device__ __forceinline__ float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }

/// 2 sqrt(2 / pi) (x + 0.044715 x^3): the tanh GELU (Hendrycks and Gimpel 2016) is x times its sigmoid.
__device__ __forceinline__ float gelu_tanh_argument(float x) {
  return 1.5957691216057308F * x * (1.0F + 0.044715F * x * x);
}

/// Phi(x), by erfc so that the lower tail keeps its digits.
__device__ __forceinline__ float normal_distribution(float x) { return 0.5F * erfcf(-0.70710678118654752F * x); }

template <Unary op>
__device__ __forceinline__ float value_of(float x) {
  if constexpr (op == Unary::negate) return -x;
  if constexpr (op == Unary::exp) return expf(x);
  if constexpr (op == Unary::log) return logf(x);
  if constexpr (op == Unary::sqrt) return sqrtf(x);
  if constexpr (op == Unary::square) return x * x;
  if constexpr (op == Unary::tanh) return tanhf(x);
  if constexpr (op == Unary::relu) return x < 0 ? 0.0F : x;
  if constexpr (op == Unary::sigmoid) return sigmoid(x);
  if constexpr (op == Unary::silu) return x * sigmoid(x);
  if constexpr (op == Unary::gelu) return x * normal_distribution(x);
  if constexpr (op == Unary::gelu_tanh) return x * sigmoid(gelu_tanh_argument(x));
}

template <Unary op>
__device__ __forceinline__ float derivative_of(float x) {
  if constexpr (op == Unary::negate) return -1.0F;
  if constexpr (op == Unary::exp) return expf(x);
  if constexpr (op == Unary::log) return 1.0F / x;
  if constexpr (op == Unary::sqrt) return 0.5F / sqrtf(x);
  if constexpr (op == Unary::square) return 2.0F * x;
  if constexpr (op == Unary::relu) return x > 0 ? 1.0F : 0.0F;
  if constexpr (op == Unary::tanh) {
    const float t = tanhf(x);
    return 1.0F - t * t;
  }
  if constexpr (op == Unary::sigmoid) {
    const float s = sigmoid(x);
    return s * (1.0F - s);
  }
  if constexpr (op == Unary::silu) {
    const float s = sigmoid(x);
    return s * (1.0F + x * (1.0F - s));
  }
  if constexpr (op == Unary::gelu) return normal_distribution(x) + x * 0.39894228040143268F * expf(-0.5F * x * x);
  if constexpr (op == Unary::gelu_tanh) {
    const float s = sigmoid(gelu_tanh_argument(x));
    return s + x * s * (1.0F - s) * 1.5957691216057308F * (1.0F + 3 * 0.044715F * x * x);
  }
}

template <Binary op, class A>
__device__ __forceinline__ A combine(A a, A b) {
  if constexpr (op == Binary::add) return a + b;
  if constexpr (op == Binary::subtract) return a - b;
  if constexpr (op == Binary::multiply) return a * b;
  if constexpr (op == Binary::divide) return a / b;
  if constexpr (op == Binary::equal) return a == b ? A{1} : A{0};
}

}  // namespace trireme::cuda
