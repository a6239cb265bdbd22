// Loops over rows that are written with Vectors: conversion to bf16, maps, and a sum of exponentials.
//
// The last elements of a row are computed as a Vector, too: a result does not depend on an element's place in its row.
// Instructions with AVX-512 for each 16 elements: exp 14, conversion to bf16 9, load of bf16 2.
// Read next: core/cpu/softmax.cpp, core/cpu/vector_math.h (the formulas).
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <type_traits>

#include "core/cpu/loops.h"
#include "core/cpu/vector_math.h"

namespace trireme::cpu {

/// Rounds as bf16(float) does. The instruction for it makes zeros of subnormal numbers, so vectors with such numbers are
/// rounded without it.
inline void store(bf16* to, Vector<float> x) {
#if defined(__AVX512BF16__) && defined(__AVX512DQ__)
  constexpr int subnormal = 0x20;
  if (_mm512_fpclass_ps_mask(reinterpret_cast<__m512>(x), subnormal) == 0) [[likely]] {
    const __m256bh rounded = _mm512_cvtneps_pbh(reinterpret_cast<__m512>(x));
    std::memcpy(static_cast<void*>(to), &rounded, sizeof rounded);
    return;
  }
#endif
  const auto u = reinterpret_cast<detail::Word>(x);
  const detail::Word rounded = u + 0x7fffU + ((u >> 16) & 1U);
  const detail::Word nan = u | 0x400000U;
  const detail::Word bits = (x != x ? nan : rounded) >> 16;  // NOLINT(misc-redundant-expression): finds NaN
  const auto half = __builtin_convertvector(bits, detail::Half);
  std::memcpy(static_cast<void*>(to), &half, sizeof half);
}

template <class T>
inline constexpr bool has_vectors = std::same_as<T, float> || std::same_as<T, bf16>;

/// The n < lanes elements from x on, followed by zeros.
template <class T>
Vector<float> load_some(const T* x, std::int64_t n) {
  T padded[lanes<float>] = {};
  std::copy_n(x, n, padded);
  return load(padded);
}
template <class T>
void store_some(T* to, std::int64_t n, Vector<float> x) {
  T padded[lanes<float>];
  store(padded, x);
  std::copy_n(padded, n, to);
}

/// How far ahead of a loop a row is fetched. Processors fetch ahead by themselves within a page only, which leaves a
/// loop with more than a few instructions waiting at each page: GELU of 32 MiB takes 0.75 of the time with this.
inline constexpr std::int64_t bytes_ahead = 2048;

/// Calls body(load, store) for each part of rows of n elements: a Vector, or an element if T has no Vectors. load(x) is
/// the part of the row x, as numbers; store(y, v) puts numbers there. Rows may also be of T's arithmetic type. A part
/// of y that was an x must be loaded before it is stored.
template <class T, class Body>
void for_parts(std::int64_t n, Body&& body) {
  if constexpr (has_vectors<T>) {
    constexpr std::int64_t width = lanes<float>;
    std::int64_t i = 0;
    for (; i + width <= n; i += width)
      body(
          [i](const auto* x) {
            __builtin_prefetch(reinterpret_cast<const std::byte*>(x + i) + bytes_ahead, 0);
            return load(x + i);
          },
          [i](auto* y, Vector<float> v) {
            __builtin_prefetch(reinterpret_cast<std::byte*>(y + i) + bytes_ahead, 1);
            store(y + i, v);
          });
    const std::int64_t rest = n - i;
    if (rest > 0)
      body([i, rest](const auto* x) { return load_some(x + i, rest); },
           [i, rest](auto* y, Vector<float> v) { store_some(y + i, rest, v); });
  } else {
    for (std::int64_t i = 0; i < n; ++i)
      body([i](const auto* x) { return widen(x[i]); },
           [i](auto* y, accumulate_t<T> v) { y[i] = static_cast<std::remove_pointer_t<decltype(y)>>(v); });
  }
}

/// y[i] = f(x[i]...) computed in T's arithmetic type; y may be one of the x. `f` must be generic: it gets scalars or
/// Vectors.
template <class T, class F, class... X>
void map_vectors(std::int64_t n, F&& f, T* y, const X*... x) {
  if constexpr (has_vectors<T> && (has_vectors<X> && ...)) {
    for_parts<T>(n, [&](auto load, auto store) { store(y, f(load(x)...)); });
  } else {
    map<accumulate_t<T>>(n, f, y, x...);
  }
}

/// The sum of exp(x[i] - top), added in the order of sum_of(); also the exponentials, unless `kept` is null.
template <bool keep, class T>
accumulate_t<T> sum_of_exponentials(std::int64_t n, const T* x, accumulate_t<T> top, accumulate_t<T>* kept) {
  using A = accumulate_t<T>;
  if constexpr (has_vectors<T>) {
    constexpr std::int64_t width = lanes<float>, unroll = 4;
    const auto at = [&](std::int64_t i) {
      const Vector<float> e = exp_approx(load(x + i) - top);
      if constexpr (keep) store(kept + i, e);
      return e;
    };
    Vector<float> sums[unroll] = {};
    std::int64_t i = 0;
    for (; i + unroll * width <= n; i += unroll * width)
      for (int k = 0; k < unroll; ++k) sums[k] += at(i + k * width);
    for (; i + width <= n; i += width) sums[0] += at(i);
    float tail = 0;
    if (i < n) {
      float last[lanes<float>];
      store(last, exp_approx(load_some(x + i, n - i) - top));
      for (std::int64_t k = 0; k < n - i; ++k) tail += last[k];
      if constexpr (keep) std::copy_n(last, n - i, kept + i);
    }
    const Vector<float> total = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    return sum_lanes<float>(reinterpret_cast<const float*>(&total)) + tail;
  } else {
    A sum = 0;
    A block[256];
    for (std::int64_t i = 0; i < n; i += 256) {
      const std::int64_t length = std::min<std::int64_t>(256, n - i);
      A* const to = keep ? kept + i : block;
      map<A>(
          length, [top](A v) { return exp_approx(v - top); }, to, x + i);
      sum += cpu::sum(to, length);
    }
    return sum;
  }
}

}  // namespace trireme::cpu
