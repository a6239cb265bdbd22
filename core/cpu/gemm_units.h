// Units multiply panels, in gemm_packed.cpp and in attention (attention_panels.h). A unit defines the size of a tile,
// the layout of panels, packing, and the product of two panels, stored in or added to a tile. There is one unit for
// every element type, and several for bf16 (processor.h). A thread must hold an object of the unit while it multiplies.
// Read next: tile_product.h, bf16_tiles.h.
#pragma once

#include <algorithm>
#include <cstddef>

#include "core/cpu/bf16_tiles.h"
#include "core/cpu/pack.h"
#include "core/cpu/pack_bf16.h"
#include "core/cpu/partition.h"
#include "core/cpu/processor.h"

namespace trireme::cpu {

/// Vectors of the sums' type; 16-bit elements are widened as they are packed.
template <class In>
struct VectorUnit {
  using Sum = accumulate_t<In>;
  using Element = Sum;             ///< of panels
  static constexpr int steps = 1;  ///< of K in an Element
  static constexpr int rows = tile_rows, columns = tile_columns<Sum>;
  static constexpr bool whole = false;  ///< whether a product writes all rows of its tile, not only as many as A has
  /// Whether B can be packed while it is multiplied, and tiles can go straight to C: if elements need no conversion.
  static constexpr bool packs_b_while_multiplying = std::is_same_v<In, Sum>;
  static constexpr bool rounds = false;  ///< whether it has store_rounded()
  /// Elements to reserve for a panel.
  static constexpr std::int64_t panel(std::int64_t width, std::int64_t depth) { return panel_size<Sum>(width, depth); }
  static void pack_a(const Strip<In>& from, Element* to) { pack_rows(from, to); }
  static void pack_b(const Strip<In>& from, Element* to) { pack_columns(from, to); }
  /// Elements from the start of a panel to a step of K that is a multiple of `columns`.
  static constexpr std::int64_t offset(std::int64_t width, std::int64_t step) { return width * step; }
  static void multiply(std::int64_t count, std::int64_t depth, const Element* a, const Element* b, Sum* tile) {
    tile_product(count, depth, a, b, {.data = tile});
  }
  static void multiply_add(std::int64_t count, std::int64_t depth, const Element* a, const Element* b, Sum* tile) {
    tile_product_add(count, depth, a, b, tile);
  }
};

/// AVX-512 BF16.
struct PairUnit {
  using Sum = float;
  using Element = Pair;
  static constexpr int steps = 2;
  static constexpr int rows = pair_tile_rows, columns = pair_tile_columns;
  static constexpr bool whole = false, packs_b_while_multiplying = false, rounds = true;
  static constexpr std::int64_t panel(std::int64_t width, std::int64_t depth) {
    return width * divide_up(depth, 2) + 16;
  }
  static void pack_a(const Strip<bf16>& from, Element* to) { pack_pairs(from, to); }
  static void pack_b(const Strip<bf16>& from, Element* to) { pack_pairs(from, columns, to); }
  static constexpr std::int64_t offset(std::int64_t width, std::int64_t step) { return width * (step / 2); }
  static void multiply(std::int64_t count, std::int64_t depth, const Element* a, const Element* b, Sum* tile) {
    pair_product(count, divide_up(depth, 2), a, b, tile);
  }
  static void multiply_add(std::int64_t count, std::int64_t depth, const Element* a, const Element* b, Sum* tile) {
    pair_product_add(count, divide_up(depth, 2), a, b, tile);
  }
};

/// AMX, or its emulation in software. Tiles are whole: rows and steps beyond the product are zeros.
template <bool software>
struct TileUnit {
  using Sum = float;
  using Element = Pair;
  static constexpr int steps = 2;
  static constexpr int rows = amx_tile_rows, columns = amx_tile_columns;
  static constexpr bool whole = true, packs_b_while_multiplying = false, rounds = !software;
  static constexpr std::int64_t panel(std::int64_t /*width*/, std::int64_t depth) {
    return std::max<std::int64_t>(1, divide_up(depth, 32)) * 2 * 16 * 16;
  }
  static void pack_a(const Strip<bf16>& from, Element* to) { pack_row_tiles(from, to); }
  static void pack_b(const Strip<bf16>& from, Element* to) { pack_column_tiles(from, to); }
  static constexpr std::int64_t offset(std::int64_t /*width*/, std::int64_t step) { return step / 32 * 2 * 16 * 16; }
  static void multiply(std::int64_t /*count*/, std::int64_t depth, const Element* a, const Element* b, Sum* tile) {
    multiply_rows(packed_row_tiles(a), depth, b, tile, columns);
  }
  static void multiply_add(std::int64_t /*count*/, std::int64_t depth, const Element* a, const Element* b, Sum* tile) {
    multiply_add_rows(packed_row_tiles(a), depth, b, tile, columns);
  }
  // The same with rows `stride` apart, and rows of A packed or not.
  static void multiply_rows(const RowTiles& a, std::int64_t depth, const Element* b, Sum* to, std::int64_t stride) {
    const std::int64_t groups = divide_up(depth, 32);
    software ? software_amx_product(groups, a, b, to, stride) : amx_product(groups, a, b, to, stride);
  }
  static void multiply_add_rows(const RowTiles& a, std::int64_t depth, const Element* b, Sum* to, std::int64_t stride) {
    const std::int64_t groups = divide_up(depth, 32);
    software ? software_amx_product_add(groups, a, b, to, stride) : amx_product_add(groups, a, b, to, stride);
  }
  /// Whether rows of A can be multiplied where they are: packing them only copies them. Rows whose distance is a
  /// multiple of 1024 bytes share sets of the first-level cache: packed, they are multiplied faster.
  static bool takes_in_place(const Strip<bf16>& a) {
    return a.count == rows && a.depth % 32 == 0 && a.depth_stride == 1 && a.stride % 512 != 0;
  }
  static RowTiles in_place(const Strip<bf16>& a) {
    constexpr auto size = static_cast<std::int64_t>(sizeof(bf16));
    return {a.data, a.stride * size, 16 * a.stride * size, 32 * size};
  }
  /// Moves both operands on by `steps` steps of K, a multiple of 32.
  static void advance(std::int64_t steps, RowTiles& a, const Element*& b) {
    a.data = static_cast<const std::byte*>(a.data) + steps / 32 * a.group;
    b += offset(columns, steps);
  }

  TileUnit() {
    if constexpr (!software) set_up_amx();
  }
  ~TileUnit() {
    if constexpr (!software) release_amx();
  }
  TileUnit(const TileUnit&) = delete;
  TileUnit& operator=(const TileUnit&) = delete;
};

/// to [rows, Unit::columns], its rows `stride` apart, = tile + bias, rounded; bias may be null. For a Unit that rounds.
template <class Unit>
void store_rounded(std::int64_t rows, const float* tile, const bf16* bias, bf16* to, std::int64_t stride) {
  static_assert(Unit::rounds && Unit::columns == pair_tile_columns);
  store_rounded(rows, tile, bias == nullptr ? nullptr : &bias->bits, &to->bits, stride);
}

/// Calls f(TypeTag<unit>{}) with the unit in use for elements of In.
template <class In, class F>
decltype(auto) visit_unit(F&& f) {
  if constexpr (std::is_same_v<In, bf16>) {
    switch (bf16_unit()) {
      case Bf16Unit::vectors:
        break;
      case Bf16Unit::pairs:
        return f(TypeTag<PairUnit>{});
      case Bf16Unit::tiles:
        return f(TypeTag<TileUnit<false>>{});
      case Bf16Unit::software_tiles:
        return f(TypeTag<TileUnit<true>>{});
    }
  }
  return f(TypeTag<VectorUnit<In>>{});
}

}  // namespace trireme::cpu
