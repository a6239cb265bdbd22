// The inner loops of the CPU kernels: element conversion, maps, and sums whose order is fixed.
//
// The compiler may not reorder a floating-point sum, so a plain loop adds one element at a time. The reductions here
// keep a Vector of partial sums, in an order that depends on the length alone: fast, and the same bits on every run and
// for any number of threads. Maps are plain loops, which the compiler vectorises.
// Read next: core/cpu/simd.h (Vector), core/cpu/strided.h (loops over views).
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "core/cpu/simd.h"
#include "core/dtype.h"
#include "core/parallel_for.h"
#include "core/tensor.h"

namespace trireme::cpu {

/// An element, converted to the type in which arithmetic on it is done.
template <class T>
accumulate_t<T> widen(T x) {
  return static_cast<accumulate_t<T>>(x);
}

/// A vector of elements of T, converted to A: T's own arithmetic type, or double for sums kept in double.
template <class A, class T>
Vector<A> load_as(const T* x) {
  if constexpr (std::same_as<A, accumulate_t<T>>) {
    return load(x);
  } else if constexpr (std::same_as<A, double> && std::same_as<T, float>) {
    typedef float Narrow __attribute__((vector_size(vector_bytes / 2)));
    Narrow narrow;
    std::memcpy(&narrow, x, sizeof narrow);
    return __builtin_convertvector(narrow, Vector<double>);
  } else {
    alignas(vector_bytes) A wide[lanes<A>];
    for (int i = 0; i < lanes<A>; ++i) wide[i] = static_cast<A>(widen(x[i]));
    return load(wide);
  }
}

/// Sum of the lanes: the halves are added until one lane is left.
template <class A, int bytes = vector_bytes>
A sum_lanes(const A* x) {
  if constexpr (bytes == sizeof(A)) {
    return *x;
  } else {
    typedef A Half __attribute__((vector_size(bytes / 2)));
    Half low, high;
    std::memcpy(&low, x, sizeof low);
    std::memcpy(&high, x + bytes / 2 / static_cast<int>(sizeof(A)), sizeof high);
    low += high;
    return sum_lanes<A, bytes / 2>(reinterpret_cast<const A*>(&low));
  }
}

/// The processor fetches ahead by itself within a page of memory only.
inline constexpr std::int64_t page_bytes = 4096;

/// Has the processor fetch the bytes of x[0] .. x[n - 1] into its caches. They need not exist.
template <class T>
void fetch(const T* x, std::int64_t n) {
  constexpr std::int64_t line = 64;
  const auto* const bytes = reinterpret_cast<const char*>(x);
  for (std::int64_t i = 0; i < n * static_cast<std::int64_t>(sizeof(T)); i += line) __builtin_prefetch(bytes + i);
}

/// A sum that is not finished: consecutive Vectors go to the parts in turn, and the last elements, which fill no
/// Vector, to tail.
template <class A>
struct PartialSums {
  static constexpr std::int64_t width = lanes<A>, count = 4, stride = count * width;
  Vector<A> parts[count] = {};
  A tail = 0;

  A total() const {
    const Vector<A> all = (parts[0] + parts[1]) + (parts[2] + parts[3]);
    return sum_lanes<A>(reinterpret_cast<const A*>(&all)) + tail;
  }
};

/// Sum over i < n of term(x[i]...), in a fixed order. `term` must be generic: it gets scalars and Vectors of A.
/// `from_memory`: fetches elements a page ahead. Where they are in a cache already, this makes the sum a third slower.
template <class A, bool from_memory = false, class Term, class... T>
A sum_of(std::int64_t n, Term&& term, const T*... x) {
  using Sums = PartialSums<A>;
  Sums sums;
  std::int64_t i = 0;
  for (; i + Sums::stride <= n; i += Sums::stride) {
    if constexpr (from_memory) (fetch(x + i + page_bytes / static_cast<std::int64_t>(sizeof(T)), Sums::stride), ...);
    for (std::int64_t k = 0; k < Sums::count; ++k) sums.parts[k] += term(load_as<A>(x + i + k * Sums::width)...);
  }
  for (; i + Sums::width <= n; i += Sums::width) sums.parts[0] += term(load_as<A>(x + i)...);
  for (; i < n; ++i) sums.tail += term(static_cast<A>(widen(x[i]))...);
  return sums.total();
}

/// Two sums with the bits of sum_of(), which read the elements once.
template <class A, class First, class Second, class... T>
std::pair<A, A> sums_of(std::int64_t n, First&& first, Second&& second, const T*... x) {
  using Sums = PartialSums<A>;
  Sums a, b;
  std::int64_t i = 0;
  for (; i + Sums::stride <= n; i += Sums::stride) {
    for (std::int64_t k = 0; k < Sums::count; ++k) {
      a.parts[k] += first(load_as<A>(x + i + k * Sums::width)...);
      b.parts[k] += second(load_as<A>(x + i + k * Sums::width)...);
    }
  }
  for (; i + Sums::width <= n; i += Sums::width) {
    a.parts[0] += first(load_as<A>(x + i)...);
    b.parts[0] += second(load_as<A>(x + i)...);
  }
  for (; i < n; ++i) {
    a.tail += first(static_cast<A>(widen(x[i]))...);
    b.tail += second(static_cast<A>(widen(x[i]))...);
  }
  return {a.total(), b.total()};
}

template <bool from_memory = false, class T>
accumulate_t<T> sum(const T* x, std::int64_t n) {
  return sum_of<accumulate_t<T>, from_memory>(
      n, [](auto v) { return v; }, x);
}

/// The larger of two scalars or Vectors; NaN if one of them is.
template <class V>
V larger(V a, V b) {
  return (a > b) | (a != a) ? a : b;  // NOLINT(misc-redundant-expression): a != a finds NaN
}

/// Largest of n elements; -infinity when n is 0; NaN when one of them is NaN.
template <class T>
accumulate_t<T> maximum(const T* x, std::int64_t n) {
  using A = accumulate_t<T>;
  constexpr std::int64_t width = lanes<A>, unroll = 4;
  constexpr A lowest = -std::numeric_limits<A>::infinity();
  Vector<A> tops[unroll] = {Vector<A>{} + lowest, Vector<A>{} + lowest, Vector<A>{} + lowest, Vector<A>{} + lowest};
  std::int64_t i = 0;
  for (; i + unroll * width <= n; i += unroll * width) {
    tops[0] = larger(load_as<A>(x + i), tops[0]);
    tops[1] = larger(load_as<A>(x + i + width), tops[1]);
    tops[2] = larger(load_as<A>(x + i + 2 * width), tops[2]);
    tops[3] = larger(load_as<A>(x + i + 3 * width), tops[3]);
  }
  for (; i + width <= n; i += width) tops[0] = larger(load_as<A>(x + i), tops[0]);
  const Vector<A> top = larger(larger(tops[0], tops[1]), larger(tops[2], tops[3]));
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

/// Work on dense tensors is split in multiples of this many elements: thread boundaries never fall inside a vector.
inline constexpr std::int64_t block_elements = 1024;

/// parallel_for over [0, n) with boundaries at multiples of block_elements; `grain` in elements.
template <class Body>
void parallel_elements(std::int64_t n, std::int64_t grain, Body&& body) {
  const std::int64_t blocks = (n + block_elements - 1) / block_elements;
  parallel_for(blocks, grain / block_elements, [&](std::int64_t begin, std::int64_t end) {
    body(begin * block_elements, std::min(n, end * block_elements));
  });
}

/// The least rows per thread for which starting it pays; `elements` is the work worth a thread.
inline std::int64_t row_grain(std::int64_t columns, std::int64_t elements) {
  return std::max<std::int64_t>(1, elements / std::max<std::int64_t>(columns, 1));
}

/// Uninitialised memory for partial results, counted as workspace. To be called outside parallel_for: the team's other
/// threads have pools of their own.
inline Tensor workspace(const Shape& shape, DType dtype) {
  const MemoryScope scope(MemoryCategory::workspace);
  return Tensor::empty(shape, dtype);
}

}  // namespace trireme::cpu
