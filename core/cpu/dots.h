// Dot products of contiguous rows, several side by side: for products in which one operand has few rows. Partial sums
// are kept in the lanes of a vector and added up in a fixed order at the end, so that the bits depend on the length
// only.
//
// Of the two rows, `a` has the accumulator's type and is used many times; `b` is read once, and must be widened in few
// instructions to keep up with memory. A vector of 32-bit words holds two bf16 in each word: a shift gives the floats
// at even places, a mask those at odd places. arrange_for_dots() puts a's elements into that order, once. Read next:
// gemm_dots.cpp, attention_few.cpp.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <utility>

#include "core/cpu/simd.h"

namespace trireme::cpu {

/// Sum of all lanes, halves added to halves.
template <class T, int half = lanes<T> / 2>
T sum_lanes(Vector<T> x) {
  const Vector<T> other = [&]<int... lane>(std::integer_sequence<int, lane...>) {
    return __builtin_shufflevector(x, x, (lane ^ half)...);
  }
  (std::make_integer_sequence<int, lanes<T>>{});
  if constexpr (half == 1) {
    return (x + other)[0];
  } else {
    return sum_lanes<T, half / 2>(x + other);
  }
}

/// Lane i: the sum of the lanes of x[i], added in the order of sum_lanes(). For as many vectors as there are lanes this
/// takes half of the instructions: each stage joins the sums of two vectors in one.
template <class T, int half = lanes<T> / 2>
[[gnu::always_inline]] inline Vector<T> sums_of_lanes(const Vector<T> (&x)[2 * half]) {
  constexpr int n = lanes<T>, segments = n / (2 * half);  // of each vector; each becomes half as long
  Vector<T> joined[half];
#pragma GCC unroll 8
  for (int i = 0; i < half; ++i) {
    joined[i] = [&]<int... lane>(std::integer_sequence<int, lane...>) {
      constexpr auto from = [](int to) {
        const int segment = to / half;
        return (segment < segments ? 0 : n) + segment % segments * 2 * half + to % half;
      };
      return __builtin_shufflevector(x[2 * i], x[2 * i + 1], from(lane)...) +
             __builtin_shufflevector(x[2 * i], x[2 * i + 1], (from(lane) + half)...);
    }
    (std::make_integer_sequence<int, n>{});
  }
  if constexpr (half == 1) {
    return joined[0];
  } else {
    return sums_of_lanes<T, half / 2>(joined);
  }
}

/// The dot product of two rows of bf16.
inline float dot(std::int64_t depth, const bf16* a, const bf16* b) {
  constexpr int step = lanes<float>;
  Vector<float> sum = {};
  std::int64_t k = 0;
  for (; k + step <= depth; k += step) sum += load(a + k) * load(b + k);
  float total = sum_lanes<float>(sum);
  for (; k < depth; ++k) total += static_cast<float>(a[k]) * static_cast<float>(b[k]);
  return total;
}

/// How many vectors a step along b gives.
template <class In>
inline constexpr int step_vectors = std::same_as<In, bf16> ? 2 : 1;

/// The next elements of b, in the order of arrange_for_dots().
template <class T, class In>
std::array<Vector<T>, step_vectors<In>> load_step(const In* b) {
  if constexpr (std::same_as<In, bf16>) {
    detail::Word words;
    std::memcpy(&words, b, sizeof(words));
    return {reinterpret_cast<Vector<float>>(words << 16), reinterpret_cast<Vector<float>>(words & 0xffff0000U)};
  } else {
    return {load(b)};
  }
}

/// Puts a row of a into the order that dots() needs when b has type In. In place; call it once.
template <class In, class T>
void arrange_for_dots(std::int64_t depth, T* a) {
  if constexpr (step_vectors<In> == 2) {
    constexpr int half = lanes<T>;
    for (; depth >= 2 * half; depth -= 2 * half, a += 2 * half) {
      T odd[half];
      for (int i = 0; i < half; ++i) odd[i] = a[2 * i + 1];
      for (int i = 0; i < half; ++i) a[i] = a[2 * i];
      for (int i = 0; i < half; ++i) a[half + i] = odd[i];
    }
  }
}

/// result[i * result_stride + j] = dot(row i of a, row j of b) for `rows` x `columns` of them; a is dense [rows,
/// depth], arranged. `ahead`: the distance in elements of b to the memory that will be needed next; 0: not known.
template <int rows, int columns, class T, class In>
void dots(std::int64_t depth, const T* a, const In* b, std::int64_t b_stride, T* result, std::int64_t result_stride,
          std::int64_t ahead = 0) {
  constexpr int vectors = step_vectors<In>, step = vectors * lanes<T>;
  Vector<T> sum[rows][columns] = {};
  std::int64_t k = 0;
  for (; k + step <= depth; k += step) {
    Vector<T> row[rows][vectors];
#pragma GCC unroll 8
    for (int i = 0; i < rows * vectors; ++i)
      row[i / vectors][i % vectors] = load(a + i / vectors * depth + k + i % vectors * lanes<T>);
#pragma GCC unroll 4
    for (int j = 0; j < columns; ++j) {
      const In* from = b + j * b_stride + k;
      __builtin_prefetch(from + ahead, 0, 2);
      const std::array<Vector<T>, vectors> column = load_step<T>(from);
#pragma GCC unroll 8
      for (int i = 0; i < rows * vectors; ++i)
        sum[i / vectors][j] += row[i / vectors][i % vectors] * column[i % vectors];
    }
  }
  [[maybe_unused]] Vector<T> totals = {};
  constexpr bool at_once = rows * columns == lanes<T>;
  if constexpr (at_once) {
    Vector<T> all[rows * columns];
#pragma GCC unroll 16
    for (int i = 0; i < rows * columns; ++i) all[i] = sum[i / columns][i % columns];
    totals = sums_of_lanes<T>(all);
  }
#pragma GCC unroll 4
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < columns; ++j) {
      T total;
      if constexpr (at_once) {
        total = totals[i * columns + j];
      } else {
        total = sum_lanes<T>(sum[i][j]);
      }
      for (std::int64_t rest = k; rest < depth; ++rest)
        total += a[i * depth + rest] * static_cast<T>(b[j * b_stride + rest]);
      result[i * result_stride + j] = total;
    }
  }
}

}  // namespace trireme::cpu
