// exp, tanh and erf without branches or tables, for loops the compiler turns into vector code.
//
// A call to std::exp keeps a loop scalar; these are a few multiply-adds each and inline into it. For float the largest
// errors found over all inputs are 1 ulp (exp), 2 ulp (tanh) and 2 ulp (erf); tests/products checks them. Special
// values follow the standard functions: NaN stays NaN, exp(-inf) = 0, exp overflows to infinity, results below the
// normal range are kept. The double versions are the standard functions, so that gradient checks lose nothing.
//
// The polynomials are minimax fits (Lawson's iteration on Chebyshev nodes) made for these intervals. Each step is an
// explicit fused multiply-add where the machine has one: a loop's scalar tail and its vector body then give the same
// bits, whatever the range a thread is handed.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace trireme {

/// a * b + c in one rounding where the machine can.
inline float multiply_add(float a, float b, float c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

/// e^x. x = n ln 2 + r with |r| <= ln 2 / 2; e^r from a polynomial; 2^n put in by two exact multiplications.
inline float exp_approx(float x) {
  constexpr float log2_e = 1.44269504F, ln2_high = 0.693359375F, ln2_low = -2.12194440e-4F;
  constexpr float rounding = 0x1.8p23F;  // adding it leaves the nearest integer in the low bits
  x = x > 89.0F ? 89.0F : x;             // e^89 is above the largest float, e^-105 below half the smallest
  x = x < -105.0F ? -105.0F : x;
  const float shifted = multiply_add(x, log2_e, rounding), n = shifted - rounding;
  const float r = multiply_add(n, -ln2_low, multiply_add(n, -ln2_high, x));
  float p = 1.38126008e-3F;
  p = multiply_add(p, r, 8.36873714e-3F);
  p = multiply_add(p, r, 4.16684222e-2F);
  p = multiply_add(p, r, 1.66665205e-1F);
  p = multiply_add(p, r, 4.99999933e-1F);
  p = multiply_add(p, r * r, r) + 1.0F;
  const std::int32_t exponent = std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(rounding);
  const std::int32_t half = exponent >> 1;  // 2^n itself may be outside the normal range; its halves are not
  return p * std::bit_cast<float>((half + 127) << 23) * std::bit_cast<float>((exponent - half + 127) << 23);
}

/// tanh x: an odd polynomial near 0, else 1 - 2 / (e^2|x| + 1) with the sign of x.
inline float tanh_approx(float x) {
  const float magnitude = std::fabs(x), z = x * x;
  float p = -5.71716895e-3F;
  p = multiply_add(p, z, 2.06507238e-2F);
  p = multiply_add(p, z, -5.37435538e-2F);
  p = multiply_add(p, z, 1.33314923e-1F);
  p = multiply_add(p, z, -3.33332840e-1F);
  const float near = multiply_add(p * z, x, x);
  const float far = std::copysign(1.0F - 2.0F / (exp_approx(2.0F * magnitude) + 1.0F), x);
  return magnitude < 0.625F ? near : far;
}

/// erf x: an odd polynomial up to 1, else 1 - e^-q(|x|) with q a polynomial; 1 from 4 on.
inline float erf_approx(float x) {
  const float magnitude = std::fabs(x), z = x * x;
  float p = 7.88870515e-5F;
  p = multiply_add(p, z, -8.02070927e-4F);
  p = multiply_add(p, z, 5.18951942e-3F);
  p = multiply_add(p, z, -2.68544356e-2F);
  p = multiply_add(p, z, 1.12835999e-1F);
  p = multiply_add(p, z, -3.76126271e-1F);
  p = multiply_add(p, z, 1.28379166e-1F);
  const float near = multiply_add(p, x, x);
  const float a = magnitude > 4.0F ? 4.0F : magnitude;
  float q = -1.86727161e-4F;
  q = multiply_add(q, a, 2.95138826e-3F);
  q = multiply_add(q, a, -2.18543408e-2F);
  q = multiply_add(q, a, 1.03143800e-1F);
  q = multiply_add(q, a, 6.38098429e-1F);
  q = multiply_add(q, a, 1.12711953F);
  q = multiply_add(q, a, 3.33429300e-4F);
  const float far = std::copysign(1.0F - exp_approx(-q), x);
  return magnitude < 1.0F ? near : far;
}

inline double exp_approx(double x) { return std::exp(x); }
inline double tanh_approx(double x) { return std::tanh(x); }
inline double erf_approx(double x) { return std::erf(x); }

}  // namespace trireme
