#include "core/cpu/pack_bf16.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>

#include "core/cpu/partition.h"
#include "core/cpu/transpose.h"

namespace trireme::cpu {
namespace {

constexpr int side = 16;  // words of a vector, and rows of a block

// The same on every processor: where vectors are shorter, the compiler takes several.
using WordVector = std::uint32_t __attribute__((vector_size(4 * side)));
using HalfVector = std::uint16_t __attribute__((vector_size(2 * side)));

/// 16 x 16 words.
struct Block {
  WordVector row[side];
};

template <class Vector>
Vector load(const bf16* from) {
  Vector x;
  std::memcpy(&x, from, sizeof x);
  return x;
}

/// 16 elements, a word each.
[[gnu::always_inline]] inline WordVector load_words(const bf16* from) {
  constexpr int part = static_cast<int>(sizeof(detail::Word) / sizeof(Pair));
  WordVector words;
#pragma GCC unroll 4
  for (int i = 0; i < side; i += part) {
    const detail::Word loaded = detail::load_words(from + i);
    std::memcpy(reinterpret_cast<std::byte*>(&words) + i * static_cast<int>(sizeof(Pair)), &loaded, sizeof loaded);
  }
  return words;
}

/// Element (i, k), zero beyond the strip.
std::uint32_t bits(const Strip<bf16>& s, std::int64_t i, std::int64_t k) {
  return i < s.count && k < s.depth ? s.data[i * s.stride + k * s.depth_stride].bits : 0U;
}

/// Row i's pairs from `pair` on.
[[gnu::always_inline]] inline WordVector row_of_pairs(const Strip<bf16>& s, std::int64_t i, std::int64_t pair) {
  if (i < s.count && s.depth_stride == 1 && 2 * (pair + side) <= s.depth)
    return load<WordVector>(s.data + i * s.stride + 2 * pair);
  alignas(64) std::array<std::uint32_t, side> words;
  for (int p = 0; p < side; ++p)
    words[static_cast<std::size_t>(p)] = bits(s, i, 2 * (pair + p)) | bits(s, i, 2 * (pair + p) + 1) << 16;
  return std::bit_cast<WordVector>(words);
}

/// The pair of 16 rows from i on.
[[gnu::always_inline]] inline WordVector pair_of_rows(const Strip<bf16>& s, std::int64_t i, std::int64_t pair) {
  if (i + side <= s.count && s.stride == 1 && 2 * (pair + 1) <= s.depth) {
    const bf16* from = s.data + i + 2 * pair * s.depth_stride;
    return load_words(from) | load_words(from + s.depth_stride) << 16;
  }
  alignas(64) std::array<std::uint32_t, side> words;
  for (int r = 0; r < side; ++r)
    words[static_cast<std::size_t>(r)] = bits(s, i + r, 2 * pair) | bits(s, i + r, 2 * pair + 1) << 16;
  return std::bit_cast<WordVector>(words);
}

bool along_depth(const Strip<bf16>& s) { return s.depth_stride == 1; }

/// One vector per row, for 16 rows from i on: 16 pairs of each row.
[[gnu::always_inline]] inline Block block_by_row(const Strip<bf16>& s, std::int64_t i, std::int64_t pair) {
  Block block;
  const bool rows = along_depth(s);
#pragma GCC unroll 16
  for (int n = 0; n < side; ++n) block.row[n] = rows ? row_of_pairs(s, i + n, pair) : pair_of_rows(s, i, pair + n);
  if (!rows) transpose_vectors<side>(block.row);
  return block;
}

/// One vector per pair, for 16 pairs: the pair of 16 rows.
[[gnu::always_inline]] inline Block block_by_pair(const Strip<bf16>& s, std::int64_t i, std::int64_t pair) {
  Block block;
  const bool rows = along_depth(s);
#pragma GCC unroll 16
  for (int n = 0; n < side; ++n) block.row[n] = rows ? row_of_pairs(s, i + n, pair) : pair_of_rows(s, i, pair + n);
  if (rows) transpose_vectors<side>(block.row);
  return block;
}

void store(Pair* to, WordVector words) { std::memcpy(to, &words, sizeof words); }

/// `width` words per pair, stored as `blocks` vectors: the next pair overwrites what spills.
template <int blocks>
void store_pairs(const Block (&block)[blocks], std::int64_t count, std::int64_t width, Pair* to) {
  for (std::int64_t p = 0; p < count; ++p) {
#pragma GCC unroll 2
    for (int b = 0; b < blocks; ++b) store(to + p * width + b * side, block[b].row[p]);
  }
}

/// Packs the first pairs of a strip along the depth, as many as make whole blocks; returns how many.
template <int blocks>
std::int64_t pack_along_depth(const Strip<bf16>& from, std::int64_t width, Pair* to) {
  const std::int64_t whole = from.depth / (2 * side) * side;
  for (std::int64_t pair = 0; pair < whole; pair += side) {
    for (int b = 0; b < blocks; ++b) {
      Block block;
#pragma GCC unroll 16
      for (int n = 0; n < side; ++n) {
        const std::int64_t i = b * side + n;
        __builtin_prefetch(from.data + (i + from.count) * from.stride + 2 * pair);
        block.row[n] = i < from.count ? load<WordVector>(from.data + i * from.stride + 2 * pair) : WordVector{};
      }
      transpose_vectors<side>(block.row);
#pragma GCC unroll 16
      for (int p = 0; p < side; ++p) store(to + (pair + p) * width + b * side, block.row[p]);
    }
  }
  return whole;
}

/// Packs a strip of whole vectors across the depth, without a half pair at the end; returns how many pairs.
template <int blocks>
std::int64_t pack_across_depth(const Strip<bf16>& from, Pair* to) {
  const std::int64_t whole = from.depth / 2;
  for (std::int64_t pair = 0; pair < whole; ++pair) {
    const bf16* x = from.data + 2 * pair * from.depth_stride;
    __builtin_prefetch(x + blocks * side);
    __builtin_prefetch(x + blocks * side + from.depth_stride);
#pragma GCC unroll 2
    for (int b = 0; b < blocks; ++b) {
      const WordVector low = load_words(x + b * side), high = load_words(x + from.depth_stride + b * side);
      store(to + (pair * blocks + b) * side, low | high << 16);
    }
  }
  return whole;
}

template <int blocks>
void pack(const Strip<bf16>& from, std::int64_t width, Pair* to) {
  const std::int64_t pairs = divide_up(from.depth, 2);
  std::int64_t pair = 0;
  if (along_depth(from)) {
    pair = pack_along_depth<blocks>(from, width, to);
  } else if (from.stride == 1 && from.count == width && width == blocks * side) {
    pair = pack_across_depth<blocks>(from, to);
  }
  for (; pair < pairs; pair += side) {
    Block block[blocks];
#pragma GCC unroll 2
    for (int b = 0; b < blocks; ++b) block[b] = block_by_pair(from, b * side, pair);
    store_pairs(block, std::min<std::int64_t>(side, pairs - pair), width, to + pair * width);
  }
}

/// 8 to 16 rows that lie side by side: two vectors of 8 cover them, overlapping where there are fewer than 16.
void pack_narrow(const Strip<bf16>& from, Pair* to) {
  constexpr int half = side / 2;
  using HalfWords = std::uint32_t __attribute__((vector_size(4 * half)));
  using HalfHalves = std::uint16_t __attribute__((vector_size(2 * half)));
  const auto words = [](const bf16* x) { return __builtin_convertvector(load<HalfHalves>(x), HalfWords); };
  for (std::int64_t k = 0; k < from.depth; k += 2, to += from.count) {
    for (const std::int64_t i : {std::int64_t{0}, from.count - half}) {
      const bf16* x = from.data + k * from.depth_stride + i;
      HalfWords pairs = words(x);
      if (k + 1 < from.depth) pairs |= words(x + from.depth_stride) << 16;
      std::memcpy(to + i, &pairs, sizeof pairs);
    }
  }
}

void store(Pair* to, const Block& block) {
  for (int n = 0; n < side; ++n) store(to + n * side, block.row[n]);
}

}  // namespace

void pack_pairs(const Strip<bf16>& from, Pair* to) {
  from.stride == 1 && from.count >= side / 2 ? pack_narrow(from, to) : pack<1>(from, from.count, to);
}

void pack_pairs(const Strip<bf16>& from, int width, Pair* to) {
  width == side ? pack<1>(from, side, to) : pack<2>(from, 2 * side, to);
}

void pack_row_tiles(const Strip<bf16>& from, Pair* to) {
  for (std::int64_t pair = 0; pair < divide_up(from.depth, 2); pair += side)
    for (std::int64_t i = 0; i < 2 * side; i += side, to += side * side) store(to, block_by_row(from, i, pair));
}

void pack_column_tiles(const Strip<bf16>& from, Pair* to) {
  for (std::int64_t pair = 0; pair < divide_up(from.depth, 2); pair += side)
    for (std::int64_t i = 0; i < 2 * side; i += side, to += side * side) store(to, block_by_pair(from, i, pair));
}

}  // namespace trireme::cpu
