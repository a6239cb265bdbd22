// The order of a row's values: larger first, and of equals the lower column first. Value and column are packed into one
// integer, so that one comparison decides. The values after the last one chosen have smaller integers.
// Read next: cuda/kernels/top_k.cu.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "cuda/device/device.h"

namespace trireme::cuda {

/// Below and above the integers of all values.
inline constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::min();
inline constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();
/// A value and its column as one integer; the largest is chosen first. 0 and -0 are equal, and so are all NaN, above
/// any number.
__device__ __forceinline__ std::int64_t order_key(float x, int column) {
  const auto bits = std::bit_cast<std::int32_t>(x + 0.0F);
  const std::int32_t as_floats = bits ^ ((bits >> 31) & 0x7fffffff);  // as integers, in the order of the floats
  const std::int32_t ordered = x != x ? 0x7fc00000 : as_floats;  // the bits of a NaN: above infinity's, below kAll's
  return (std::int64_t{ordered} << 32) | ~static_cast<std::uint32_t>(column);
}
__device__ __forceinline__ std::int32_t column_of(std::int64_t key) { return ~static_cast<std::int32_t>(key); }

/// The larger of `best` and `key`; `key` counts only if it is below `last`.
__device__ __forceinline__ std::int64_t larger_below(std::int64_t last, std::int64_t best, std::int64_t key) {
  return key < last && key > best ? key : best;
}

/// The largest value of `lanes` neighbouring lanes, in all of them.
__device__ __forceinline__ std::int64_t largest_of(std::int64_t mine, int lanes) {
  for (int bits = lanes >> 1; bits > 0; bits >>= 1) {
    const std::int64_t other = shuffle_xor(mine, bits);
    mine = other > mine ? other : mine;
  }
  return mine;
}

}  // namespace trireme::cuda
