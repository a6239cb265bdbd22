// The inner loops of the CPU kernels: element conversion, maps, and sums whose order is fixed.
//
// The compiler may not reorder a floating-point sum, so a plain loop adds one element at a time. The reductions here
// keep `Lanes` of partial sums in GCC's portable vector type, in an order that depends on the length alone: fast, and
// the same bits on every run and for any number of threads. Maps are plain loops, which the compiler vectorises.
// Read next: core/cpu/strided.h (loops over views).
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <limits>

#include "core/dtype.h"
#include "core/parallel_for.h"

namespace trireme::cpu {

/// An element in the type arithmetic on it is done in.
template <class T>
accumulate_t<T> widen(T x) {
  return static_cast<accumulate_t<T>>(x);
}

/// A vector of 64 bytes of float or double; arithmetic operators work lane by lane, also against a scalar.
template <class A>
struct LanesOf {
  typedef A type __attribute__((vector_size(64)));
  static constexpr std::int64_t count = 64 / sizeof(A);
};
template <class A>
using Lanes = typename LanesOf<A>::type;

/// As many elements as Lanes<A> holds, converted to A.
template <class A, class T>
Lanes<A> load_lanes(const T* x) {
  Lanes<A> lanes;
  if constexpr (std::same_as<T, A>) {
    std::memcpy(&lanes, x, sizeof lanes);
  } else {
    alignas(64) A wide[LanesOf<A>::count];
    for (std::int64_t i = 0; i < LanesOf<A>::count; ++i) wide[i] = static_cast<A>(widen(x[i]));
    std::memcpy(&lanes, wide, sizeof lanes);
  }
  return lanes;
}

template <class A>
A sum_lanes(Lanes<A> lanes) {
  for (std::int64_t half = LanesOf<A>::count / 2; half > 0; half /= 2) {
    for (std::int64_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

/// Sum over i < n of term(x[i]...), in a fixed order. `term` must be generic: it gets scalars and Lanes. A is float or double.
template <class A, class Term, class... T>
A sum_of(std::int64_t n, Term&& term, const T*... x) {
  constexpr std::int64_t width = LanesOf<A>::count, unroll = 4;
  Lanes<A> sums[unroll] = {};
  std::int64_t i = 0;
  for (; i + unroll * width <= n; i += unroll * width) {
    sums[0] += term(load_lanes<A>(x + i)...);
    sums[1] += term(load_lanes<A>(x + i + width)...);
    sums[2] += term(load_lanes<A>(x + i + 2 * width)...);
    sums[3] += term(load_lanes<A>(x + i + 3 * width)...);
  }
  for (; i + width <= n; i += width) sums[0] += term(load_lanes<A>(x + i)...);
  A tail = 0;
  for (; i < n; ++i) tail += term(static_cast<A>(widen(x[i]))...);
  return sum_lanes<A>((sums[0] + sums[1]) + (sums[2] + sums[3])) + tail;
}

template <class T>
accumulate_t<T> sum(const T* x, std::int64_t n) {
  return sum_of<accumulate_t<T>>(n, [](auto v) { return v; }, x);
}

/// The larger of two scalars or Lanes; NaN when one is.
template <class V>
V larger(V a, V b) {
  return (a > b) | (a != a) ? a : b;
}

/// Largest of n elements; -infinity when n is 0; NaN when one of them is NaN.
template <class T>
accumulate_t<T> maximum(const T* x, std::int64_t n) {
  using A = accumulate_t<T>;
  constexpr std::int64_t width = LanesOf<A>::count, unroll = 4;
  constexpr A lowest = -std::numeric_limits<A>::infinity();
  Lanes<A> tops[unroll] = {Lanes<A>{} + lowest, Lanes<A>{} + lowest, Lanes<A>{} + lowest, Lanes<A>{} + lowest};
  std::int64_t i = 0;
  for (; i + unroll * width <= n; i += unroll * width) {
    tops[0] = larger(load_lanes<A>(x + i), tops[0]);
    tops[1] = larger(load_lanes<A>(x + i + width), tops[1]);
    tops[2] = larger(load_lanes<A>(x + i + 2 * width), tops[2]);
    tops[3] = larger(load_lanes<A>(x + i + 3 * width), tops[3]);
  }
  for (; i + width <= n; i += width) tops[0] = larger(load_lanes<A>(x + i), tops[0]);
  const Lanes<A> top = larger(larger(tops[0], tops[1]), larger(tops[2], tops[3]));
  A result = lowest;
  for (std::int64_t lane = 0; lane < width; ++lane) result = larger<A>(top[lane], result);
  for (; i < n; ++i) result = larger<A>(widen(x[i]), result);
  return result;
}

/// y[i] = f(x[i]...) computed in A; y may be one of the x (the same pointer), no other overlap.
template <class A, class T, class F, class... X>
void map(std::int64_t n, F&& f, T* y, const X*... x) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(f(static_cast<A>(widen(x[i]))...));
}

/// Elements in the unit work on dense tensors is split by: boundaries between threads never fall inside a vector.
inline constexpr std::int64_t block_elements = 1024;

/// parallel_for over [0, n) with boundaries at multiples of block_elements; `grain` in elements.
template <class Body>
void parallel_elements(std::int64_t n, std::int64_t grain, Body&& body) {
  const std::int64_t blocks = (n + block_elements - 1) / block_elements;
  parallel_for(blocks, grain / block_elements, [&](std::int64_t begin, std::int64_t end) {
    body(begin * block_elements, std::min(n, end * block_elements));
  });
}

/// Rows a thread must have so that starting it pays: `elements` is the work worth a thread.
inline std::int64_t row_grain(std::int64_t columns, std::int64_t elements) {
  return std::max<std::int64_t>(1, elements / std::max<std::int64_t>(columns, 1));
}

}  // namespace trireme::cpu
