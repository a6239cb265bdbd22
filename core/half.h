// The two 16-bit floating-point formats, as storage types: arithmetic is done in float.
//   bf16: 8 exponent bits, 7 of fraction. f16 (IEEE binary16): 5 exponent bits, 10 of fraction.
// Conversions from float round to nearest even; NaN stays NaN (a quiet one), overflow becomes infinity.
//
// The conversions choose between values instead of branching and use no special instructions: a loop over them becomes
// vector code on any machine, which a scalar conversion instruction would prevent.
// Read next: core/dtype.h.
#pragma once

#include <bit>
#include <cstdint>

namespace trireme {

struct bf16 {
  std::uint16_t bits = 0;

  bf16() = default;
  explicit bf16(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const bool nan = (u & 0x7fffffffU) > 0x7f800000U;
    const std::uint32_t rounded = u + 0x7fffU + ((u >> 16) & 1U);
    bits = static_cast<std::uint16_t>(nan ? (u >> 16) | 0x40U : rounded >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

/// The bits of `value` rounded at random to one of the two nearest bf16, so that the expected value is `value`: the
/// upper 16 bits of `word`, a random word, decide. Infinity and NaN stay, and so does what bf16 can represent.
constexpr std::uint16_t stochastic_bf16(float value, std::uint32_t word) {
  const auto u = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = u & 0x7fffffffU;
  const std::uint32_t special = (u >> 16) | (magnitude > 0x7f800000U ? 0x40U : 0U);
  return static_cast<std::uint16_t>(magnitude >= 0x7f800000U ? special : (u + (word >> 16)) >> 16);
}

struct f16 {
  std::uint16_t bits = 0;

  f16() = default;
  explicit f16(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (u >> 16) & 0x8000U, magnitude = u & 0x7fffffffU;
    // Below 2^-14 the result is subnormal: adding 0.5 aligns the fraction, and the addition rounds it.
    const std::uint32_t tiny = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000U;
    const std::uint32_t normal = (magnitude + 0xfffU + ((magnitude >> 13) & 1U) - 0x38000000U) >> 13;
    const std::uint32_t nan = 0x7e00U | ((magnitude >> 13) & 0x1ffU);
    const std::uint32_t finite = magnitude < 0x38800000U ? tiny : normal;
    const std::uint32_t special = magnitude > 0x7f800000U ? nan : 0x7c00U;
    bits = static_cast<std::uint16_t>(sign | (magnitude >= 0x47800000U ? special : finite));
  }
  explicit operator float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16, magnitude = bits & 0x7fffU;
    const auto tiny = std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24F);
    const std::uint32_t normal = (magnitude << 13) + 0x38000000U;
    const std::uint32_t special = 0x7f800000U | (magnitude << 13);
    const std::uint32_t finite = magnitude < 0x0400U ? tiny : normal;
    return std::bit_cast<float>(sign | (magnitude >= 0x7c00U ? special : finite));
  }
};

}  // namespace trireme
