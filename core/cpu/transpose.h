// Transposes squares of elements in registers. Read next: core/cpu/pack.cpp, core/cpu/pack_kernels.h.
#pragma once

#include <algorithm>
#include <utility>

#include "core/cpu/simd.h"

namespace trireme::cpu {

/// Transposes a square of n vectors of n elements, in log2(n) steps that take two vectors to two. Instructions that
/// work within 16 bytes of a vector need no register of indices, so the steps within 16 bytes come first. The other
/// steps move groups of 16 bytes.
template <int n, class V>
[[gnu::always_inline]] inline void transpose_vectors(V (&rows)[n]) {
  constexpr int inner = std::min(n, 16 / static_cast<int>(sizeof(V) / n)),
                outer = n / inner;  // elements of a group, groups
#pragma GCC unroll 2
  for (int stage = 1; stage < inner; stage *= 2) {
    V next[n];
#pragma GCC unroll 16
    for (int i = 0; i < n / 2; ++i) {
      const int group = i / (inner / 2) * inner, k = i % (inner / 2);
      const V a = rows[group + k], b = rows[group + k + inner / 2];
      [&]<int... j>(std::integer_sequence<int, j...>) {  // interleaves the first halves of groups; the second ones
        next[group + 2 * k] = __builtin_shufflevector(a, b, (j / inner * inner + j % inner / 2 + j % 2 * n)...);
        next[group + 2 * k + 1] =
            __builtin_shufflevector(a, b, (j / inner * inner + inner / 2 + j % inner / 2 + j % 2 * n)...);
      }
      (std::make_integer_sequence<int, n>{});
    }
#pragma GCC unroll 16
    for (int i = 0; i < n; ++i) rows[i] = next[i];
  }
#pragma GCC unroll 2
  for (int stage = 1; stage < outer; stage *= 2) {
    V next[n];
#pragma GCC unroll 16
    for (int i = 0; i < n / 2; ++i) {
      const int group = i / inner, k = i % inner;
      const V a = rows[2 * group * inner + k], b = rows[(2 * group + 1) * inner + k];
      [&]<int... j>(std::integer_sequence<int, j...>) {  // the even groups of a and b; the odd ones
        next[i] = __builtin_shufflevector(a, b, (j / inner * 2 * inner + j % inner)...);
        next[i + n / 2] = __builtin_shufflevector(a, b, (j / inner * 2 * inner + inner + j % inner)...);
      }
      (std::make_integer_sequence<int, n>{});
    }
#pragma GCC unroll 16
    for (int i = 0; i < n; ++i) rows[i] = next[i];
  }
}

template <class T>
[[gnu::always_inline]] inline void transpose_square(Vector<T> (&rows)[lanes<T>]) {
  transpose_vectors<lanes<T>>(rows);
}

}  // namespace trireme::cpu
