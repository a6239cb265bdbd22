// The normal distribution and its density, for GELU and its gradient, of a float in a loop that the
// compiler vectorises, or of a Vector.
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
/// by Lawson's iteration). Beyond 14.2 the tail is 0 in f32; the clamp at 15 keeps s small there, and the exponent in
/// the range of exp_in_range(). Computing the tail directly keeps the digits that cancel in 1 + erf.
template <class V>
inline NormalPoint<V> normal_point(V x) {
  const V a = at_most(magnitude(x), 15.0F), s = a / multiply_add(a, repeated<V>(0.23F), repeated<V>(1.0F));
  const V r = polynomial(s, -6.113988163e-7F, 1.143958683e-5F, -6.519759363e-5F, -2.179775040e-4F, 5.526684301e-3F,
                         -3.906209817e-2F, 1.582364092e-1F, -3.989415384e-1F, 0.5F);
  const V exponential = exp_in_range(-0.5F * a * a), tail = exponential * r;
  constexpr float scale = std::numbers::inv_sqrtpi_v<float> * (std::numbers::sqrt2_v<float> / 2);
  return {x > 0.0F ? 1.0F - tail : tail, scale * exponential};
}

/// The same in f64, by the library.
inline NormalPoint<double> normal_point(double x) {
  constexpr double scale = std::numbers::inv_sqrtpi * (std::numbers::sqrt2 / 2);
  return {0.5 * std::erfc(x * (-std::numbers::sqrt2 / 2)), scale * std::exp(-0.5 * x * x)};
}

}  // namespace trireme::cpu
