// The innermost loop of every matrix product here: one tile of C held in registers while K runs.
//
// A tile is up to tile_rows x tile_columns. Each step of K loads tile_vectors vectors of B, repeats one element of A at
// a time, and does rows * tile_vectors fused multiply-adds, 2 * rows * tile_columns FLOPs, on (rows + tile_columns)
// elements read. The registers hold the tile, one row of B and one element of A; this fixes the tile's size.
// Every element of C is one chain of multiply-adds in the order of K, whatever tile it falls in: that is why results
// do not depend on how C is split. The shape of the loop is that of BLIS (Van Zee and van de Geijn, TOMS 2015).
// Read next: pack.h, which makes the panels.
#pragma once

#include <cstdint>

#include "core/cpu/simd.h"

namespace trireme::cpu {

inline constexpr int tile_vectors = 2;
inline constexpr int tile_rows = vector_registers == 32 ? 14 : 6;
template <class T>
inline constexpr int tile_columns = tile_vectors* lanes<T>;

/// Where a finished tile goes: [rows, tile_columns], rows `stride` apart; it replaces what is there, or is added to it.
template <class T>
struct TilePlace {
  T* data;
  std::int64_t stride = tile_columns<T>;
  bool add = false;
  const T* bias = nullptr;  ///< [tile_columns], added to each row; null: none
};

/// to[i][j] = sum over k of a[k][i] * b[k][j]; a [depth, rows], b [depth, tile_columns], dense; 1 <= rows <= tile_rows.
/// T is float or double.
template <class T>
void tile_product(std::int64_t rows, std::int64_t depth, const T* a, const T* b, const TilePlace<T>& to);

/// The same for the first `lanes<T>` columns only: for the last columns of B, if a vector holds them.
template <class T>
void tile_product_narrow(std::int64_t rows, std::int64_t depth, const T* a, const T* b, const TilePlace<T>& to);

/// tile_product with sums that start from what the tile holds; dense.
template <class T>
void tile_product_add(std::int64_t rows, std::int64_t depth, const T* a, const T* b, T* tile);

/// tile_product for columns of B that are not packed yet, their steps b_stride apart. It also copies them into the
/// panel `packed`. The copy costs almost nothing: the multiply-adds wait for neither its loads nor its stores.
template <class T>
void tile_product_packing_b(std::int64_t rows, std::int64_t depth, const T* a, const T* b, std::int64_t b_stride,
                            T* packed, const TilePlace<T>& to);

}  // namespace trireme::cpu
