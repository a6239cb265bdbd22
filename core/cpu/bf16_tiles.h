// The innermost loops of products of bf16, for processors that have instructions for them; tile_product.h has the loop
// for all others. Sums are kept in f32; these instructions treat subnormal numbers as zero.
//
// vdpbf16ps adds two products to each of 16 sums. A tile of 14 x 32 sums takes 28 registers, and a pair of A is
// broadcast to one more: 2 x 14 x 32 multiply-adds for 2 loads and 14 broadcasts. tdpbf16ps multiplies a tile of 16
// rows by 32 steps of K with a tile of 32 steps by 16 columns, 16 x 16 x 32 multiply-adds. With four tiles of sums,
// each loaded tile of A and B is used twice. Read next: pack_bf16.h (the panels), processor.h (which is used).
#pragma once

#include <cstdint>

namespace trireme::cpu {

inline constexpr int pair_tile_rows = 14, pair_tile_columns = 32;
/// tile [rows, 32] = the product of panels of `pairs` pairs: a [pairs, rows], b [pairs, 32]. AVX-512 BF16.
void pair_product(std::int64_t rows, std::int64_t pairs, const std::uint32_t* a, const std::uint32_t* b, float* tile);
/// The same, added to what the tile holds.
void pair_product_add(std::int64_t rows, std::int64_t pairs, const std::uint32_t* a, const std::uint32_t* b,
                      float* tile);
/// to [rows, 32], its rows `stride` apart, = tile [rows, 32] + bias [32], rounded to bf16, whose bits `to` and bias hold;
/// bias may be null. Results that are subnormal become zero, as sums of these instructions do. AVX-512 BF16.
void store_rounded(std::int64_t rows, const float* tile, const std::uint16_t* bias, std::uint16_t* to,
                   std::int64_t stride);

inline constexpr int amx_tile_rows = 32, amx_tile_columns = 32;
/// 32 rows of A for AMX: two tiles of 16 rows for each group of 32 steps of K, packed, or in a matrix whose rows lie
/// along K.
struct RowTiles {
  const void* data;
  std::int64_t row, second, group;  // bytes: between rows, from the first tile to the second, between groups
};
/// A panel [groups, 2, 16, 16] of pairs.
inline RowTiles packed_row_tiles(const std::uint32_t* panel) { return {panel, 64, 1024, 2048}; }

/// to [32, 32], its rows `stride` apart, = the product of `groups` groups of 32 steps of K: b [groups, 2, 16, 16] pairs.
/// The first uses AMX, which the calling thread must have set up; the second is plain C++.
void amx_product(std::int64_t groups, const RowTiles& a, const std::uint32_t* b, float* to, std::int64_t stride);
void software_amx_product(std::int64_t groups, const RowTiles& a, const std::uint32_t* b, float* to,
                          std::int64_t stride);
/// The same, added to what is there.
void amx_product_add(std::int64_t groups, const RowTiles& a, const std::uint32_t* b, float* to, std::int64_t stride);
void software_amx_product_add(std::int64_t groups, const RowTiles& a, const std::uint32_t* b, float* to,
                              std::int64_t stride);
void set_up_amx();   ///< configures the calling thread's tiles: eight of 16 rows of 64 bytes
void release_amx();  ///< frees the tiles, so that the system need not save them

}  // namespace trireme::cpu
