// The copies of a convolution: padded planes, which packing reads without bounds, and channels moved last.
// Read next: core/cpu/conv.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "core/cpu/pack.h"

namespace trireme::cpu {

/// A copy [rows, phases, columns] of a plane, padded with zeros, of which it holds only what a convolution reads: every
/// `row_step`-th row of the padded plane, and its first `phases` columns of each run of `spacing`. Column c of the
/// padded plane is at [c % spacing, c / spacing], so columns that are `spacing` apart are neighbours.
struct PaddedPlane {
  std::int64_t rows = 0, columns = 0, phases = 1, spacing = 1, row_step = 1;
  std::int64_t top = 0, left = 0;  ///< zeros before the source's first row and column

  std::int64_t row_size() const { return phases * columns; }
  std::int64_t size() const { return rows * row_size(); }
  std::int64_t at(std::int64_t row, std::int64_t column) const {  ///< of the padded source
    return row / row_step * row_size() + column % spacing * columns + column / spacing;
  }
};

template <class T>
void pad_plane(const T* from, std::int64_t height, std::int64_t width, const PaddedPlane& plane, T* to) {
  for (std::int64_t row = 0; row < plane.rows; ++row, to += plane.row_size()) {
    const std::int64_t source = row * plane.row_step - plane.top;
    if (source < 0 || source >= height) {
      std::fill_n(to, plane.row_size(), T{});
      continue;
    }
    const T* const line = from + source * width;
    for (std::int64_t phase = 0; phase < plane.phases; ++phase) {
      T* const out = to + phase * plane.columns;
      // Column c of this phase holds column c * spacing + phase - left of the source.
      const std::int64_t shift = phase - plane.left, n = plane.spacing;
      const std::int64_t begin = std::clamp<std::int64_t>(shift >= 0 ? 0 : (-shift + n - 1) / n, 0, plane.columns);
      const std::int64_t end =
          std::clamp<std::int64_t>(width <= shift ? 0 : (width - shift + n - 1) / n, begin, plane.columns);
      std::fill_n(out, begin, T{});
      if (n == 1) {
        std::memcpy(out + begin, line + begin + shift, static_cast<std::size_t>(end - begin) * sizeof(T));
      } else {
        for (std::int64_t c = begin; c < end; ++c) out[c] = line[c * n + shift];
      }
      std::fill_n(out + end, plane.columns - end, T{});
    }
  }
}

/// to [height, width, stride] = from [channels, height * width] with channels last, in the middle of a padded image of
/// rows of `row_stride` elements; `to` is the image's element (0, 0). channels <= stride.
template <class T>
void move_channels_last(const T* from, std::int64_t channels, std::int64_t height, std::int64_t width, T* to,
                        std::int64_t stride, std::int64_t row_stride) {
  const std::int64_t plane = height * width;
  if constexpr (std::is_same_v<T, accumulate_t<T>>) {
    if (channels == stride && channels == tile_columns<T>) {
      const std::int64_t rows = std::max<std::int64_t>(1, 256 / width);  // at once, so that the strip stays in L1
      std::vector<T> strip(static_cast<std::size_t>(panel_size<T>(stride, rows * width)));
      for (std::int64_t row = 0; row < height; row += rows) {
        const std::int64_t count = std::min(rows, height - row);
        pack_columns<T>({from + row * width, channels, count * width, plane, 1}, strip.data());
        for (std::int64_t i = 0; i < count; ++i)
          std::memcpy(to + (row + i) * row_stride, strip.data() + i * width * stride,
                      static_cast<std::size_t>(width * stride) * sizeof(T));
      }
      return;
    }
  }
  for (std::int64_t row = 0; row < height; ++row)
    for (std::int64_t column = 0; column < width; ++column)
      for (std::int64_t c = 0; c < channels; ++c)
        to[row * row_stride + column * stride + c] = from[c * plane + row * width + column];
}

}  // namespace trireme::cpu
