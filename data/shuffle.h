// Random orders of numbers that need no memory and no state: the number at a place is a function of seed and epoch.
// Read next: data/dataset.h, data/sample_source.h.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "core/random.h"

namespace trireme {

/// The number at place `place` in a random order of 0 .. count - 1. A Feistel network permutes the numbers of an even
/// number of bits; it is applied again while its result is not below count (Black and Rogaway 2002, "Ciphers with
/// Arbitrary Finite Domains").
inline std::uint64_t shuffled(std::uint64_t place, std::uint64_t count, std::uint64_t seed, std::uint64_t epoch) {
  constexpr unsigned rounds = 4;
  const unsigned half = std::max(1U, (static_cast<unsigned>(std::bit_width(count - 1)) + 1) / 2);
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  do {
    std::uint64_t left = place >> half, right = place & mask;
    for (unsigned round = 0; round < rounds; ++round) {
      const std::uint64_t word = random_word(seed, stream_of("dataset"), (epoch * rounds + round) << 32 | right);
      left = std::exchange(right, left ^ (word & mask));
    }
    place = left << half | right;
  } while (place >= count);
  return place;
}

/// The row of a sample: samples epoch * rows .. (epoch + 1) * rows - 1 are all rows, each once, in an order that
/// depends on (seed, epoch), or in their own order if not `shuffle`.
inline std::int64_t row_of_sample(std::int64_t sample, std::int64_t rows, std::uint64_t seed, bool shuffle) {
  const auto s = static_cast<std::uint64_t>(sample), count = static_cast<std::uint64_t>(rows);
  return static_cast<std::int64_t>(shuffle ? shuffled(s % count, count, seed, s / count) : s % count);
}

}  // namespace trireme
