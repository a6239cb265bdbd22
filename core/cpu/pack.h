// Panels: strips of a matrix copied so that tile_product.h reads them front to back.
//
// A panel is [depth, width]; the innermost dim has the width of a tile. Packing reads each element once and converts
// 16-bit ones to float. The tile product sees the same layout for every transpose.
// Read next: core/cpu/tile_product.h.
#pragma once

#include <cstdint>

#include "core/cpu/tile_product.h"
#include "core/dtype.h"

namespace trireme::cpu {

/// `count` x `depth` elements in memory: element (i, k) is at data[i * stride + k * depth_stride].
template <class From>
struct Strip {
  const From* data;
  std::int64_t count, depth;
  std::int64_t stride, depth_stride;
};

/// Elements to reserve for a panel: stores may run up to one vector past its end.
template <class T>
constexpr std::int64_t panel_size(std::int64_t width, std::int64_t depth) {
  return width * depth + lanes<T>;
}

/// A panel of A: [depth, from.count], 1 <= from.count <= tile_rows.
template <class From>
void pack_rows(const Strip<From>& from, accumulate_t<From>* to);

/// A panel of B: [depth, tile_columns], zeros where from.count is less.
template <class From>
void pack_columns(const Strip<From>& from, accumulate_t<From>* to);

}  // namespace trireme::cpu
