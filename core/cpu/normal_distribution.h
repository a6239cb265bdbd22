// The normal distribution and its density, for GELU and its gradient, in a form that the compiler vectorises.
// Read next: core/cpu/vector_math.h (exp), core/cpu/elementwise.cpp (GELU).
#pragma once

#include <cmath>
#include <numbers>

#include "core/cpu/vector_math.h"

namespace trireme::cpu {

template <class A>
struct NormalPoint {
  A distribution;  ///< Phi(x) = (1 + erf(x / sqrt 2)) / 2
  A density;       ///< phi(x) = exp(-x^2 / 2) / sqrt(2 pi)
};

/// Phi and phi from one exponential. The tail is Phi(-|x|) = exp(-x^2 / 2) Q(|x|); Q falls smoothly from 1/2, and in
/// s = |x| / (1 + 0.23 |x|) a polynomial of degree 8 approximates it within 6e-8 relative on |x| <= 14 (a minimax fit
/// by Lawson's iteration), beyond which floats hold no tail. Computing the tail directly keeps digits that 1 + erf
/// loses.
inline NormalPoint<float> normal_point(float x) {
  const float magnitude = std::fabs(x), a = magnitude > 15.0F ? 15.0F : magnitude;
  const float s = a / multiply_add(a, 0.23F, 1.0F);
  float q = -6.113988163e-7F;
  q = multiply_add(q, s, 1.143958683e-5F);
  q = multiply_add(q, s, -6.519759363e-5F);
  q = multiply_add(q, s, -2.179775040e-4F);
  q = multiply_add(q, s, 5.526684301e-3F);
  q = multiply_add(q, s, -3.906209817e-2F);
  q = multiply_add(q, s, 1.582364092e-1F);
  q = multiply_add(q, s, -3.989415384e-1F);
  q = multiply_add(q, s, 0.5F);
  const float exponential = exp_approx(-0.5F * x * x), tail = exponential * q;
  constexpr float scale = std::numbers::inv_sqrtpi_v<float> * (std::numbers::sqrt2_v<float> / 2);
  return {x > 0.0F ? 1.0F - tail : tail, scale * exponential};
}

inline NormalPoint<double> normal_point(double x) {
  constexpr double scale = std::numbers::inv_sqrtpi * (std::numbers::sqrt2 / 2);
  return {0.5 * std::erfc(x * (-std::numbers::sqrt2 / 2)), scale * std::exp(-0.5 * x * x)};
}

}  // namespace trireme::cpu
