// The most elements that a tensor can have: Shape and the parsers of files refuse more, so that products of extents,
// strides and bytes do not overflow.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

namespace trireme {

inline constexpr std::int64_t most_elements = std::int64_t{1} << 48;  ///< more than an address can tell apart

/// The product of the extents; nothing if one is negative, or if it is more than most_elements. An extent of 0 counts
/// as 1 here: the strides of the others must not overflow either.
constexpr std::optional<std::int64_t> product_of(std::span<const std::int64_t> extents) {
  std::int64_t count = 1;
  for (const std::int64_t extent : extents)
    if (extent < 0 || __builtin_mul_overflow(count, std::max<std::int64_t>(extent, 1), &count) || count > most_elements)
      return std::nullopt;
  return count;
}

/// Whether a tensor can have these extents.
constexpr bool are_possible(std::span<const std::int64_t> extents) { return product_of(extents).has_value(); }

}  // namespace trireme
