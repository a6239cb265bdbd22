// Loops over views: several tensors of one shape, each with its own strides, walked together in row-major order.
//
// Neighbouring dims that every tensor steps through evenly are merged first, so most views become one or two dims with
// a long inner run. Kernels then get runs instead of indices.
// Read next: core/cpu/memory.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/shape.h"

namespace trireme::cpu {

/// One shape and the strides, in elements, of K tensors over it. There is always at least one dim.
template <int K>
struct Layout {
  int dims = 1;
  std::array<std::int64_t, Shape::max_dims> extent{1};
  std::array<std::array<std::int64_t, Shape::max_dims>, K> stride{};

  std::int64_t inner() const { return extent[static_cast<std::size_t>(dims - 1)]; }
  std::int64_t inner_stride(int tensor) const {
    return stride[static_cast<std::size_t>(tensor)][static_cast<std::size_t>(dims - 1)];
  }
  std::int64_t count() const {
    std::int64_t n = 1;
    for (int dim = 0; dim < dims; ++dim) n *= extent[static_cast<std::size_t>(dim)];
    return n;
  }
};

/// Drops dims of extent 1 and merges a dim with the next where all tensors allow it.
template <int K>
Layout<K> merge_dims(const Shape& shape, const std::array<Shape, K>& strides) {
  Layout<K> layout;
  int last = -1;
  for (int dim = 0; dim < shape.dims(); ++dim) {
    if (shape[dim] == 1) continue;
    bool merges = last >= 0;
    for (std::size_t k = 0; k < K && merges; ++k) {
      merges = layout.stride[k][static_cast<std::size_t>(last)] == strides[k][dim] * shape[dim];
    }
    if (!merges) layout.extent[static_cast<std::size_t>(++last)] = 1;
    const auto to = static_cast<std::size_t>(last);
    layout.extent[to] *= shape[dim];
    for (std::size_t k = 0; k < K; ++k) layout.stride[k][to] = strides[k][dim];
  }
  layout.dims = std::max(last + 1, 1);
  return layout;
}

/// Calls run(offsets, length) for the pieces of inner dim that elements [begin, end) of the row-major order cover.
/// offsets: where the piece starts in each tensor; step along it by inner_stride().
template <int K, class Run>
void for_runs(const Layout<K>& layout, std::int64_t begin, std::int64_t end, Run&& run) {
  if (begin >= end) return;
  const auto inner_dim = static_cast<std::size_t>(layout.dims - 1);
  std::array<std::int64_t, Shape::max_dims> index{};
  std::array<std::int64_t, K> offset{};
  std::int64_t rest = begin;
  for (std::size_t dim = inner_dim + 1; dim-- > 0 && rest > 0;) {
    index[dim] = rest % layout.extent[dim];
    rest /= layout.extent[dim];
    for (std::size_t k = 0; k < K; ++k) offset[k] += index[dim] * layout.stride[k][dim];
  }
  const std::int64_t inner = layout.extent[inner_dim];
  if (inner_dim == 0) return run(offset, end - begin);
  const std::size_t row_dim = inner_dim - 1;
  while (begin < end) {
    // Whole runs along row_dim are one loop: the steps from run to run would take longer than a short run.
    const std::int64_t first = index[inner_dim], length = std::min(end - begin, inner - first);
    const std::int64_t rows =
        length < inner ? 1 : std::min(layout.extent[row_dim] - index[row_dim], (end - begin) / inner);
    for (std::int64_t row = 0; row < rows; ++row) {
      run(offset, length);
      for (std::size_t k = 0; k < K; ++k) offset[k] += layout.stride[k][row_dim];
    }
    begin += rows * length;
    for (std::size_t k = 0; k < K; ++k) offset[k] -= first * layout.stride[k][inner_dim];
    index[inner_dim] = 0;
    index[row_dim] += rows;
    for (std::size_t dim = row_dim; dim > 0 && index[dim] == layout.extent[dim]; --dim) {
      for (std::size_t k = 0; k < K; ++k)
        offset[k] += layout.stride[k][dim - 1] - layout.extent[dim] * layout.stride[k][dim];
      index[dim] = 0;
      ++index[dim - 1];
    }
  }
}

}  // namespace trireme::cpu
