// Panels of A for the gradient of a convolution's input: the transpose of the weight, made while packing. The kernels
// of neighbouring rows are next to each other in memory, so they are loaded as vectors and transposed in registers.
//
// Bytes: the weight once. Read next: core/cpu/conv.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <type_traits>

#include "core/cpu/gemm.h"
#include "core/cpu/gemm_units.h"
#include "core/cpu/transpose.h"

namespace trireme::cpu {

/// One step of `to` for each kernel position in steps [first, last) of an output's kernels: `from` [count, kernel].
template <class T>
void copy_kernels(const T* from, const KernelMatrix& matrix, std::int64_t first, std::int64_t last, std::int64_t count,
                  T* to) {
  for (std::int64_t j = first; j < last; ++j, to += count)
    for (std::int64_t i = 0; i < count; ++i) to[i] = from[i * matrix.kernel + matrix.order[j]];
}

/// The same with vectors; kernel <= lanes<T>. Reads one vector from each row's beginning on, and writes up to a vector
/// past the end.
template <class T>
void transpose_kernels(const T* from, const KernelMatrix& matrix, std::int64_t first, std::int64_t last,
                       std::int64_t count, T* to) {
  constexpr int n = lanes<T>;
  Vector<T> square[n];
#pragma GCC unroll 16
  for (int i = 0; i < n; ++i) square[i] = i < count ? load(from + i * matrix.kernel) : Vector<T>{};
  transpose_square<T>(square);
  alignas(64) std::array<T, static_cast<std::size_t>(n * n)> rows;
#pragma GCC unroll 16
  for (int i = 0; i < n; ++i) store(rows.data() + i * n, square[i]);
  for (std::int64_t j = first; j < last; ++j, to += count) store(to, load(rows.data() + matrix.order[j] * n));
}

/// The kernels of another output are far away in memory: no processor fetches them by itself.
template <class T>
void prefetch_kernels(const T* from, std::int64_t count) {
  constexpr std::int64_t line = 64 / static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t i = 0; i < count + line; i += line) __builtin_prefetch(from + i);
}
inline constexpr std::int64_t outputs_ahead = 4;

/// to [depth, rows.size()].
template <class T>
void gather_kernels(const KernelMatrix& matrix, IndexRange rows, IndexRange depth, T* to) {
  const std::int64_t count = rows.size();
  for (std::int64_t k = depth.begin; k < depth.end;) {
    const std::int64_t o = k / matrix.order_count, first = k % matrix.order_count;
    const std::int64_t last = std::min(matrix.order_count, first + depth.end - k);
    const T* const from = static_cast<const T*>(matrix.data) + o * matrix.output_stride + rows.begin * matrix.kernel;
    prefetch_kernels(from + outputs_ahead * matrix.output_stride, count * matrix.kernel);
    bool by_vectors = false;
    if constexpr (std::is_same_v<T, accumulate_t<T>>) {
      constexpr int n = lanes<T>;
      by_vectors = matrix.kernel <= n && count <= n &&
                   from + (count - 1) * matrix.kernel + n <= static_cast<const T*>(matrix.end);
      if (by_vectors) transpose_kernels(from, matrix, first, last, count, to);
    }
    if (!by_vectors) copy_kernels(from, matrix, first, last, count, to);
    to += (last - first) * count;
    k += last - first;
  }
}

/// A panel of A for `unit`.
template <class In, class Unit>
void pack_kernels(Unit& unit, const KernelMatrix& from, IndexRange rows, IndexRange depth, typename Unit::Element* to) {
  if constexpr (std::is_same_v<In, typename Unit::Element>) {
    gather_kernels<In>(from, rows, depth, to);
  } else {
    constexpr std::int64_t most_steps = 64;  // a multiple of Unit::columns, as Unit::offset() requires
    alignas(64) std::array<In, static_cast<std::size_t>(most_steps * Unit::rows)> buffer;
    for (std::int64_t step = 0; step < depth.size(); step += most_steps) {
      const std::int64_t first = depth.begin + step, steps = std::min(most_steps, depth.size() - step);
      gather_kernels<In>(from, rows, {first, first + steps}, buffer.data());
      unit.pack_a({buffer.data(), rows.size(), steps, 1, rows.size()}, to + Unit::offset(rows.size(), step));
    }
  }
}

}  // namespace trireme::cpu
