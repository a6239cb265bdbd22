#include "core/cpu/pack_bf16.h"

#include <algorithm>
#include <array>
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

bool along_depth(const Strip<bf16>& s) { return s.depth_stride == 1; }

/// 16 rows from i on by 16 pairs, all inside the strip: a vector per row if `along`, else a vector per pair.
template <bool along>
[[gnu::always_inline]] inline Block whole_block(const Strip<bf16>& s, std::int64_t i, std::int64_t pair) {
  Block block;
  const bf16* from = s.data + i * s.stride + 2 * pair * s.depth_stride;
#pragma GCC unroll 16
  for (int n = 0; n < side; ++n) {
    if constexpr (along) {
      block.row[n] = load<WordVector>(from + n * s.stride);
    } else {
      const bf16* const low = from + 2 * n * s.depth_stride;
      __builtin_prefetch(low + s.count);  // of the next strip
      __builtin_prefetch(low + s.count + s.depth_stride);
      block.row[n] = load_words(low) | load_words(low + s.depth_stride) << 16;
    }
  }
  return block;
}

/// The same for a block that may go beyond the strip: of a copy with zeros there.
[[gnu::noinline]] Block edge_block(const Strip<bf16>& s, std::int64_t i, std::int64_t pair) {
  alignas(64) std::array<bf16, 2 * side * side> copy{};
  const std::int64_t rows = std::clamp<std::int64_t>(s.count - i, 0, side),
                     steps = std::clamp<std::int64_t>(s.depth - 2 * pair, 0, 2 * side);
  const bf16* const from = s.data + i * s.stride + 2 * pair * s.depth_stride;
  if (along_depth(s)) {
    for (std::int64_t r = 0; r < rows; ++r) std::copy_n(from + r * s.stride, steps, copy.data() + r * 2 * side);
    return whole_block<true>({copy.data(), side, 2 * side, 2 * side, 1}, 0, 0);
  }
  for (std::int64_t k = 0; k < steps; ++k)
    for (std::int64_t r = 0; r < rows; ++r)
      copy[static_cast<std::size_t>(k * side + r)] = from[r * s.stride + k * s.depth_stride];
  return whole_block<false>({copy.data(), side, 2 * side, 1, side}, 0, 0);
}

/// 16 rows from i on by 16 pairs: a vector per pair if `by_pair`, else a vector per row.
template <bool by_pair>
[[gnu::always_inline]] inline Block block_of(const Strip<bf16>& s, std::int64_t i, std::int64_t pair) {
  const bool along = along_depth(s), whole = i + side <= s.count && 2 * (pair + side) <= s.depth;
  Block block = whole && along           ? whole_block<true>(s, i, pair)
                : whole && s.stride == 1 ? whole_block<false>(s, i, pair)
                                         : edge_block(s, i, pair);
  if (along == by_pair) transpose_vectors<side>(block.row);
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
    for (int b = 0; b < blocks; ++b) block[b] = block_of<true>(from, b * side, pair);
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

template <bool by_pair>
void pack_tiles(const Strip<bf16>& from, Pair* to) {
  for (std::int64_t pair = 0; pair < divide_up(from.depth, 2); pair += side) {
    for (std::int64_t i = 0; i < 2 * side; i += side, to += side * side) {
      const Block block = block_of<by_pair>(from, i, pair);
#pragma GCC unroll 16
      for (int n = 0; n < side; ++n) store(to + n * side, block.row[n]);
    }
  }
}

}  // namespace

void pack_pairs(const Strip<bf16>& from, Pair* to) {
  from.stride == 1 && from.count >= side / 2 ? pack_narrow(from, to) : pack<1>(from, from.count, to);
}

void pack_pairs(const Strip<bf16>& from, int width, Pair* to) {
  width == side ? pack<1>(from, side, to) : pack<2>(from, 2 * side, to);
}

void pack_row_tiles(const Strip<bf16>& from, Pair* to) { pack_tiles<false>(from, to); }
void pack_column_tiles(const Strip<bf16>& from, Pair* to) { pack_tiles<true>(from, to); }

}  // namespace trireme::cpu
