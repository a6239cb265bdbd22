// exp, tanh and erf without branches or tables, of a float in a loop that the compiler vectorises, or of a Vector.
//
// A call to std::exp keeps a loop scalar; these are a few multiply-adds each and inline into it. For f32 the largest
// errors found over all inputs are 1 ulp (exp), 2 ulp (tanh) and 2 ulp (erf); tests/products checks them. Special
// values follow the standard functions: NaN stays NaN, exp(-inf) = 0, exp overflows to infinity, results below the
// normal range are kept. The double versions are the standard functions, so that gradient checks lose nothing.
//
// The polynomials are minimax fits (Lawson's iteration on Chebyshev nodes) made for these intervals. Each step is an
// explicit fused multiply-add where the machine has one: a loop's scalar tail and its vector body then give the same
// bits, whatever the range a thread is handed.
// Read next: core/cpu/vector_operations.h.
#pragma once

#include <cmath>

#include "core/cpu/vector_operations.h"

namespace trireme {

/// e^x for x in [-112.5, 89], or NaN. x = n ln 2 + r with |r| <= ln 2 / 2; e^r from a polynomial, times 2^n.
template <class V>
inline V exp_in_range(V x) {
  constexpr float log2_e = 1.44269504F, ln2_high = 0.693359375F, ln2_low = -2.12194440e-4F;
  const V shifted = multiply_add(x, repeated<V>(log2_e), repeated<V>(to_integer)), n = shifted - to_integer;
  const V r = multiply_add(n, repeated<V>(-ln2_low), multiply_add(n, repeated<V>(-ln2_high), x));
  const V p = polynomial(r, 1.38126008e-3F, 8.36873714e-3F, 4.16684222e-2F, 1.66665205e-1F, 4.99999933e-1F);
  return times_power_of_two(multiply_add(p, r * r, r) + 1.0F, shifted);
}

/// e^x. e^89 is above the largest float, e^-105 below half the smallest.
template <class V>
inline V exp_approx(V x) {
  return exp_in_range(at_least(at_most(x, 89.0F), -105.0F));
}

/// tanh x: an odd polynomial near 0, else 1 - 2 / (e^2|x| + 1) with the sign of x.
template <class V>
inline V tanh_approx(V x) {
  const V a = magnitude(x), z = x * x;
  const V p = polynomial(z, -5.71716895e-3F, 2.06507238e-2F, -5.37435538e-2F, 1.33314923e-1F, -3.33332840e-1F);
  const V near = multiply_add(p * z, x, x), e = exp_in_range(at_most(2.0F * a, 89.0F));
  const V far = with_sign(1.0F - 2.0F / (e + 1.0F), x);
  return a < 0.625F ? near : far;
}

/// erf x: an odd polynomial up to 1, else 1 - e^-q(|x|) with q a polynomial; 1 from 4 on.
template <class V>
inline V erf_approx(V x) {
  const V magnitude_of_x = magnitude(x), z = x * x;
  const V p = polynomial(z, 7.88870515e-5F, -8.02070927e-4F, 5.18951942e-3F, -2.68544356e-2F, 1.12835999e-1F,
                         -3.76126271e-1F, 1.28379166e-1F);
  const V near = multiply_add(p, x, x), a = at_most(magnitude_of_x, 4.0F);
  const V q = polynomial(a, -1.86727161e-4F, 2.95138826e-3F, -2.18543408e-2F, 1.03143800e-1F, 6.38098429e-1F,
                         1.12711953F, 3.33429300e-4F);
  const V far = with_sign(1.0F - exp_in_range(-q), x);
  return magnitude_of_x < 1.0F ? near : far;
}

inline double exp_approx(double x) { return std::exp(x); }
inline double tanh_approx(double x) { return std::tanh(x); }
inline double erf_approx(double x) { return std::erf(x); }

/// 1 / (1 + e^-x)
template <class V>
inline V sigmoid_approx(V x) {
  return 1 / (1 + exp_approx(-x));
}

}  // namespace trireme
