// Panels of a GatheredMatrix (gemm.h): runs of its columns are copied with whole vectors.
//
// Bytes: each element of the panel is read once, and written once or, at the end of a run, twice. A panel of 32 columns
// of f32 takes two vectors per step of K if its columns are one run, and one more for each further run.
// Read next: core/cpu/conv.cpp, which makes such matrices of patches.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "core/cpu/gemm.h"
#include "core/cpu/gemm_units.h"

namespace trireme::cpu {

/// One vector of each row: from `offset` in the matrix to column `at` of the panel.
struct GatheredVector {
  std::int64_t offset, at;
};

/// The vectors that cover some columns, in the order of the columns. A vector may run past the end of its run: what
/// follows is written later.
template <class T, int most>
struct GatheredVectors {
  std::array<GatheredVector, most> vectors;
  int count = 0;

  GatheredVectors(const std::int64_t* offsets, IndexRange columns) {
    constexpr std::int64_t lane_count = vector_bytes / static_cast<std::int64_t>(sizeof(T));
    std::int64_t covered = 0;  // columns, from the first
    for (std::int64_t j = columns.begin; j < columns.end; ++j) {
      const bool continues = j > columns.begin && offsets[j] == offsets[j - 1] + 1;
      if (continues && j - columns.begin < covered) continue;
      vectors[static_cast<std::size_t>(count++)] = {offsets[j], j - columns.begin};
      covered = j - columns.begin + lane_count;
    }
  }
};

template <class T, int count>
void copy_vectors(const T* data, const std::int64_t* rows, std::int64_t depth, const GatheredVector* vectors,
                  std::int64_t width, T* to) {
  std::array<GatheredVector, static_cast<std::size_t>(count)> own;
  std::copy_n(vectors, count, own.begin());
  for (std::int64_t k = 0; k < depth; ++k, to += width) {
    const T* const from = data + rows[k];
#pragma GCC unroll 4
    for (int i = 0; i < count; ++i)
      std::memcpy(to + own[static_cast<std::size_t>(i)].at, from + own[static_cast<std::size_t>(i)].offset,
                  vector_bytes);
  }
}

/// to [depth, width] = elements (depth, columns) of the matrix; columns.size() <= width <= most. Writes up to one
/// vector past the end. Columns beyond columns.size() get any values.
template <class T, int most>
void copy_gathered(const GatheredMatrix& from, IndexRange depth, IndexRange columns, std::int64_t width, T* to) {
  const GatheredVectors<T, most> pieces(from.columns, columns);
  const GatheredVector* const vectors = pieces.vectors.data();
  const T* const data = static_cast<const T*>(from.data);
  const std::int64_t* const rows = from.rows + depth.begin;
  switch (pieces.count) {
    case 1:
      return copy_vectors<T, 1>(data, rows, depth.size(), vectors, width, to);
    case 2:
      return copy_vectors<T, 2>(data, rows, depth.size(), vectors, width, to);
    case 3:
      return copy_vectors<T, 3>(data, rows, depth.size(), vectors, width, to);
    case 4:
      return copy_vectors<T, 4>(data, rows, depth.size(), vectors, width, to);
    default:
      for (std::int64_t k = 0; k < depth.size(); ++k, to += width)
        for (int i = 0; i < pieces.count; ++i)
          std::memcpy(to + vectors[i].at, data + rows[k] + vectors[i].offset, vector_bytes);
  }
}

/// A panel of B for `unit`. Elements that the unit converts or interleaves go through a small buffer.
template <class In, class Unit>
void pack_gathered(Unit& unit, const GatheredMatrix& from, IndexRange depth, IndexRange columns,
                   typename Unit::Element* to) {
  constexpr int width = Unit::columns;
  if constexpr (std::is_same_v<In, typename Unit::Element>) {
    copy_gathered<In, width>(from, depth, columns, width, to);
  } else {
    constexpr std::int64_t most_steps = 64;  // a multiple of the width, as Unit::offset() requires
    static_assert(most_steps % width == 0);
    alignas(64) std::array<In, static_cast<std::size_t>(most_steps * width) + vector_bytes / sizeof(In)> buffer;
    for (std::int64_t step = 0; step < depth.size(); step += most_steps) {
      const std::int64_t first = depth.begin + step, steps = std::min(most_steps, depth.size() - step);
      copy_gathered<In, width>(from, {first, first + steps}, columns, width, buffer.data());
      unit.pack_b({buffer.data(), columns.size(), steps, 1, width}, to + Unit::offset(width, step));
    }
  }
}

}  // namespace trireme::cpu
