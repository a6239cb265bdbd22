// One product of AMX tiles, written once for the processor's tiles and for their emulation in software. Unit has
// load<t>, of 16 rows of 64 bytes, zero<t>, store<t>, load_sum<t> and dot<sum, a, b>, where the numbers are tile
// registers. Registers 0 to 3 hold sums, 4 and 5 rows of A, 6 and 7 columns of B. Include it from amx_tiles.cpp and
// amx_software.cpp only.
#pragma once

#include <cstddef>

#include "core/cpu/bf16_tiles.h"

namespace trireme::cpu {

/// Sets the sums' initial values: zero, or what the tile holds.
template <bool add, int t, class Unit>
void start_sum(Unit unit, const float* from, std::int64_t stride) {
  if constexpr (add) {
    unit.template load_sum<t>(from, stride);
  } else {
    unit.template zero<t>();
  }
}

template <bool add, class Unit>
void tile_product_of(Unit unit, std::int64_t groups, const RowTiles& a, const std::uint32_t* b, float* to,
                     std::int64_t stride) {
  constexpr int words_of_tile = 16 * 16, packed_row = 64;
  const auto* rows = static_cast<const std::byte*>(a.data);
  start_sum<add, 0>(unit, to, stride);
  start_sum<add, 1>(unit, to + 16, stride);
  start_sum<add, 2>(unit, to + 16 * stride, stride);
  start_sum<add, 3>(unit, to + 16 * stride + 16, stride);
  for (std::int64_t group = 0; group < groups; ++group, rows += a.group, b += 2 * words_of_tile) {
    unit.template load<4>(rows, a.row);
    unit.template load<6>(b, packed_row);
    unit.template dot<0, 4, 6>();
    unit.template load<7>(b + words_of_tile, packed_row);
    unit.template dot<1, 4, 7>();
    unit.template load<5>(rows + a.second, a.row);
    unit.template dot<2, 5, 6>();
    unit.template dot<3, 5, 7>();
  }
  unit.template store<0>(to, stride);
  unit.template store<1>(to + 16, stride);
  unit.template store<2>(to + 16 * stride, stride);
  unit.template store<3>(to + 16 * stride + 16, stride);
}

}  // namespace trireme::cpu
