// One product of AMX tiles, written once for the processor's tiles and for their emulation in software. Unit has
// load<t>, zero<t>, store<t>, load_sum<t> and dot<sum, a, b>, where the numbers are tile registers. Registers 0 to 3
// hold sums, 4 and 5 rows of A, 6 and 7 columns of B. Include it from amx_tiles.cpp and amx_software.cpp only.
#pragma once

#include "core/cpu/bf16_tiles.h"

namespace trireme::cpu {

/// Sets the sums' initial values: zero, or what the tile holds.
template <bool add, int t, class Unit>
void start_sum(Unit unit, const float* from) {
  if constexpr (add) {
    unit.template load_sum<t>(from);
  } else {
    unit.template zero<t>();
  }
}

template <bool add, class Unit>
void tile_product_of(Unit unit, std::int64_t groups, const std::uint32_t* a, const std::uint32_t* b, float* tile) {
  constexpr int words_of_tile = 16 * 16;
  start_sum<add, 0>(unit, tile);
  start_sum<add, 1>(unit, tile + 16);
  start_sum<add, 2>(unit, tile + 16 * amx_tile_columns);
  start_sum<add, 3>(unit, tile + 16 * amx_tile_columns + 16);
  for (std::int64_t group = 0; group < groups; ++group, a += 2 * words_of_tile, b += 2 * words_of_tile) {
    unit.template load<4>(a);
    unit.template load<6>(b);
    unit.template dot<0, 4, 6>();
    unit.template load<7>(b + words_of_tile);
    unit.template dot<1, 4, 7>();
    unit.template load<5>(a + words_of_tile);
    unit.template dot<2, 5, 6>();
    unit.template dot<3, 5, 7>();
  }
  unit.template store<0>(tile);
  unit.template store<1>(tile + 16);
  unit.template store<2>(tile + 16 * amx_tile_columns);
  unit.template store<3>(tile + 16 * amx_tile_columns + 16);
}

}  // namespace trireme::cpu
