// Panels of bf16 for processors that multiply pairs: two steps of K stand side by side in one 32-bit word, the first in
// its lower half, as vdpbf16ps and tdpbf16ps read them. A step beyond K is zero. Sources are as for pack.h; where they
// hold K contiguously, words are copied as they are. Read next: bf16_tiles.h.
#pragma once

#include "core/cpu/pack.h"

namespace trireme::cpu {

using Pair = std::uint32_t;

/// [ceil(depth / 2), count], 1 <= count <= 16; stores run up to 16 words past the end.
void pack_pairs(const Strip<bf16>& from, Pair* to);
/// [ceil(depth / 2), width], zeros where from.count is less; width is 16 or 32.
void pack_pairs(const Strip<bf16>& from, int width, Pair* to);

/// Tiles of 16 rows by 16 pairs, row after row: [ceil(depth / 32)][2][16][16], the rows of two tiles; zeros beyond.
void pack_row_tiles(const Strip<bf16>& from, Pair* to);
/// Tiles of 16 pairs by 16 columns: [ceil(depth / 32)][2][16][16], the columns of two tiles; zeros beyond.
void pack_column_tiles(const Strip<bf16>& from, Pair* to);

}  // namespace trireme::cpu
