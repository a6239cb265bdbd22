// The normal distribution and its density, for GELU and its gradient, in a form that the compiler vectorises.
// Read next: core/cpu/vector_math.h (exp), core/cpu/elementwise.cpp (GELU).
#pragma once

#include <cmath>
#include <numbers>

#include "core/cpu/vector_math.h"

namespace trireme::cpu {

template <class A>
struct NormalPoint {
  A cdf;  ///< Phi(x) = (1 + erf(x / sqrt 2)) / 2
  A pdf;  ///< phi(x) = exp(-x^2 / 2) / sqrt(2 pi)
};

/// Phi and phi from one exponential. The tail is Phi(-|x|) = exp(-x^2 / 2) R(|x|); R falls smoothly from 1/2, and in
/// s = |x| / (1 + 0.23 |x|) a polynomial of degree 8 approximates it within 7e-8 relative on |x| <= 14 (a minimax fit
/// by Lawson's iteration). Beyond 14.2 the tail is 0 in f32; the clamp at 15 keeps s small there. Computing the tail
/// directly keeps digits that 1 + erf loses.
inline NormalPoint<float> normal_point(float x) {
  const float magnitude = std::fabs(x), a = magnitude > 15.0F ? 15.0F : magnitude;
  const float s = a / multiply_add(a, 0.23F, 1.0F);
  float r = -6.113988163e-7F;
  r = multiply_add(r, s, 1.143958683e-5F);
  r = multiply_add(r, s, -6.519759363e-5F);
  r = multiply_add(r, s, -2.179775040e-4F);
  r = multiply_add(r, s, 5.526684301e-3F);
  r = multiply_add(r, s, -3.906209817e-2F);
  r = multiply_add(r, s, 1.582364092e-1F);
  r = multiply_add(r, s, -3.989415384e-1F);
  r = multiply_add(r, s, 0.5F);
  const float exponential = exp_approx(-0.5F * x * x), tail = exponential * r;
  constexpr float scale = std::numbers::inv_sqrtpi_v<float> * (std::numbers::sqrt2_v<float> / 2);
  return {x > 0.0F ? 1.0F - tail : tail, scale * exponential};
}

/// The same in f64, by the library.
inline NormalPoint<double> normal_point(double x) {
  constexpr double scale = std::numbers::inv_sqrtpi * (std::numbers::sqrt2 / 2);
  return {0.5 * std::erfc(x * (-std::numbers::sqrt2 / 2)), scale * std::exp(-0.5 * x * x)};
}

}  // namespace trireme::cpu
