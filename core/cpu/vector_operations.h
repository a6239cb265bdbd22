// The operations that the formulas of f32 are made of, for a float and for a Vector of them. A formula written with
// these, once for both, gives the same bits either way.
//
// The compiler vectorises loops over floats for registers of 256 bits, and takes seven instructions for 2^n. With
// AVX-512, a Vector fills a register, and one instruction multiplies by 2^n. It is exact where the two products of the
// other version are.
// Read next: core/cpu/vector_math.h (the formulas), core/cpu/vector_rows.h (loops over rows).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#if defined(__FMA__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "core/cpu/simd.h"

namespace trireme {

/// x, or a Vector of it.
template <class V>
inline V repeated(float x) {
  return V{} + x;
}

/// a * b + c in one rounding where the machine can.
inline float multiply_add(float a, float b, float c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}
inline cpu::Vector<float> multiply_add(cpu::Vector<float> a, cpu::Vector<float> b, cpu::Vector<float> c) {
#if defined(__AVX512F__)
  return reinterpret_cast<cpu::Vector<float>>(
      _mm512_fmadd_ps(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), reinterpret_cast<__m512>(c)));
#elif defined(__FMA__)
  return reinterpret_cast<cpu::Vector<float>>(
      _mm256_fmadd_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b), reinterpret_cast<__m256>(c)));
#elif defined(__aarch64__)
  return reinterpret_cast<cpu::Vector<float>>(
      vfmaq_f32(reinterpret_cast<float32x4_t>(c), reinterpret_cast<float32x4_t>(a), reinterpret_cast<float32x4_t>(b)));
#else
  return a * b + c;
#endif
}

/// The smaller of x and the bound, and the larger; NaN if x is. With vectors, that is one instruction: of two operands
/// of which one is NaN, it returns the second.
inline float at_most(float x, float bound) { return x > bound ? bound : x; }
inline float at_least(float x, float bound) { return x < bound ? bound : x; }
inline cpu::Vector<float> at_most(cpu::Vector<float> x, float bound) {
  const auto limit = repeated<cpu::Vector<float>>(bound);
#if defined(__AVX512F__)
  return reinterpret_cast<cpu::Vector<float>>(
      _mm512_maskz_min_ps(0xffff, reinterpret_cast<__m512>(limit), reinterpret_cast<__m512>(x)));
#elif defined(__FMA__)
  return reinterpret_cast<cpu::Vector<float>>(
      _mm256_min_ps(reinterpret_cast<__m256>(limit), reinterpret_cast<__m256>(x)));
#else
  return x > limit ? limit : x;
#endif
}
inline cpu::Vector<float> at_least(cpu::Vector<float> x, float bound) {
  const auto limit = repeated<cpu::Vector<float>>(bound);
#if defined(__AVX512F__)
  return reinterpret_cast<cpu::Vector<float>>(
      _mm512_maskz_max_ps(0xffff, reinterpret_cast<__m512>(limit), reinterpret_cast<__m512>(x)));
#elif defined(__FMA__)
  return reinterpret_cast<cpu::Vector<float>>(
      _mm256_max_ps(reinterpret_cast<__m256>(limit), reinterpret_cast<__m256>(x)));
#else
  return x < limit ? limit : x;
#endif
}

/// |x|
inline float magnitude(float x) { return std::fabs(x); }
inline cpu::Vector<float> magnitude(cpu::Vector<float> x) {
  return reinterpret_cast<cpu::Vector<float>>(reinterpret_cast<cpu::detail::Word>(x) & 0x7fffffffU);
}

/// x, which is not negative, with the sign of `sign`.
inline float with_sign(float x, float sign) { return std::copysign(x, sign); }
inline cpu::Vector<float> with_sign(cpu::Vector<float> x, cpu::Vector<float> sign) {
  return reinterpret_cast<cpu::Vector<float>>(reinterpret_cast<cpu::detail::Word>(x) |
                                              (reinterpret_cast<cpu::detail::Word>(sign) & 0x80000000U));
}

/// Adding it to a number below 2^22 leaves the nearest integer in the low bits of the sum.
inline constexpr float to_integer = 0x1.8p23F;

/// p 2^n for `shifted` = n + to_integer and n in [-252, 252]. 2^n can overflow or underflow, so p is multiplied twice,
/// each time with about half the exponent.
inline float times_power_of_two(float p, float shifted) {
  const std::int32_t n = std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(to_integer);
  const std::int32_t half = n >> 1;
  return p * std::bit_cast<float>((half + 127) << 23) * std::bit_cast<float>((n - half + 127) << 23);
}
inline cpu::Vector<float> times_power_of_two(cpu::Vector<float> p, cpu::Vector<float> shifted) {
#if defined(__AVX512F__)
  return reinterpret_cast<cpu::Vector<float>>(
      _mm512_maskz_scalef_ps(0xffff, reinterpret_cast<__m512>(p), reinterpret_cast<__m512>(shifted - to_integer)));
#else
  typedef std::int32_t Integer __attribute__((vector_size(cpu::vector_bytes)));
  const Integer n = reinterpret_cast<Integer>(shifted) - std::bit_cast<std::int32_t>(to_integer), half = n >> 1;
  return p * reinterpret_cast<cpu::Vector<float>>((half + 127) << 23) *
         reinterpret_cast<cpu::Vector<float>>((n - half + 127) << 23);
#endif
}

/// c x^n + ... + last, by Horner's rule.
template <class V, class... C>
inline V polynomial(V x, float c, C... rest) {
  V p = repeated<V>(c);
  ((p = multiply_add(p, x, repeated<V>(rest))), ...);
  return p;
}

}  // namespace trireme
