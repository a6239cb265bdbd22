// Random numbers addressed by position, not drawn from a stream: Philox4x32-10 (Salmon et al., "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011). The number for an element is a pure function of (seed, stream, element
// index), so a weight or a dropout mask is the same whichever rank computes it and however the tensor is sharded.
// Read next: core/cpu/dropout.cpp, nn/init.h.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace trireme {

/// Four 32-bit random words for counter (stream, block) under key `seed`. constexpr: kernels on a GPU call it too.
constexpr std::array<std::uint32_t, 4> philox(std::uint64_t seed, std::uint64_t stream, std::uint64_t block) {
  std::array<std::uint32_t, 4> c = {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                                    static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)};
  auto k0 = static_cast<std::uint32_t>(seed), k1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * c[0], p1 = std::uint64_t{0xCD9E8D57U} * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return c;
}

/// A 32-bit random word for one element: four neighbours share a Philox block.
constexpr std::uint32_t random_word(std::uint64_t seed, std::uint64_t stream, std::uint64_t element) {
  return philox(seed, stream, element / 4)[element % 4];
}

/// Uniform in [0, 1) with 24 bits.
inline float random_uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t element) {
  return static_cast<float>(random_word(seed, stream, element) >> 8) * 0x1p-24F;
}

/// Standard normal, by the Box-Muller transform of two of the four words that a pair of elements shares.
inline double random_normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t element) {
  const auto words = philox(seed, stream, element / 2);
  const double u = (static_cast<double>(words[element % 2]) + 1.0) * 0x1p-32;  // in (0, 1]: its logarithm is finite
  const double angle = 6.283185307179586 * (static_cast<double>(words[2 + element % 2]) * 0x1p-32);
  return std::sqrt(-2.0 * std::log(u)) * std::cos(angle);
}

/// A stable 64-bit number for a name (FNV-1a): the `stream` of a parameter or an operation.
constexpr std::uint64_t stream_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

}  // namespace trireme
