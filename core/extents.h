// The most elements that a tensor can have: Shape and the parsers of files refuse more, so that products of extents,
// strides and bytes do not overflow.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace trireme {

inline constexpr std::int64_t most_elements = std::int64_t{1} << 48;  ///< more than an address can tell apart

/// False if an extent is negative, or if they have more than most_elements together. An extent of 0 counts as 1 here:
/// the strides of the others must not overflow either.
constexpr bool are_possible(std::span<const std::int64_t> extents) {
  std::int64_t count = 1;
  return std::all_of(extents.begin(), extents.end(), [&](std::int64_t extent) {
    return extent >= 0 && !__builtin_mul_overflow(count, std::max<std::int64_t>(extent, 1), &count) &&
           count <= most_elements;
  });
}

}  // namespace trireme
