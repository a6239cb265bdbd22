// bf16 and f16 against their definition, exhaustively: every pattern, and every boundary between neighbours.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <initializer_list>
#include <limits>

#include "core/half.h"

using namespace trireme;

namespace {

// The value of a finite pattern, from the format's definition.
double decode(std::uint32_t bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const auto exponent = static_cast<int>((bits >> fraction_bits) & ((1U << exponent_bits) - 1U));
  const auto fraction = static_cast<double>(bits & ((1U << fraction_bits) - 1U));
  const double magnitude = exponent == 0 ? std::ldexp(fraction, 1 - bias - fraction_bits)
                                         : std::ldexp(1 + std::ldexp(fraction, -fraction_bits), exponent - bias);
  return bits >> 15 ? -magnitude : magnitude;
}

template <class T>
float widened(std::uint32_t bits) {
  T x;
  x.bits = static_cast<std::uint16_t>(bits);
  return static_cast<float>(x);
}

template <class T>
void check_every_pattern(int exponent_bits, int fraction_bits) {
  const std::uint32_t infinity = ((1U << exponent_bits) - 1U) << fraction_bits, quiet = 1U << (fraction_bits - 1);
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float wide = widened<T>(bits);
    const std::uint32_t magnitude = bits & 0x7fffU, back = T(wide).bits;
    if (magnitude > infinity) {
      wrong += !std::isnan(wide) || back != (bits | quiet);
    } else if (magnitude == infinity) {
      wrong += !std::isinf(wide) || std::signbit(wide) != (bits >> 15 != 0) || back != bits;
    } else {
      wrong += static_cast<double>(wide) != decode(bits, exponent_bits, fraction_bits) || back != bits;
    }
  }
  CHECK(wrong == 0);
}

// Halfway between neighbours goes to the even one; the floats on either side of halfway to the nearer one.
template <class T>
void check_every_boundary(int exponent_bits, int fraction_bits) {
  const std::uint32_t infinity = ((1U << exponent_bits) - 1U) << fraction_bits;
  int wrong = 0;
  for (std::uint32_t low = 0; low < infinity; ++low) {
    const std::uint32_t high = low + 1, even = low % 2 == 0 ? low : high;
    const double above =
        high == infinity ? std::ldexp(1.0, 1 << (exponent_bits - 1)) : decode(high, exponent_bits, fraction_bits);
    const auto halfway = static_cast<float>((decode(low, exponent_bits, fraction_bits) + above) / 2);
    for (const float sign : {1.0F, -1.0F}) {
      const std::uint32_t sign_bit = sign < 0 ? 0x8000U : 0U;
      wrong += T(sign * halfway).bits != (even | sign_bit);
      wrong += T(sign * std::nextafter(halfway, 0.0F)).bits != (low | sign_bit);
      wrong += T(sign * std::nextafter(halfway, std::numeric_limits<float>::infinity())).bits != (high | sign_bit);
    }
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("bf16: every pattern and every rounding boundary") {
  check_every_pattern<bf16>(8, 7);
  check_every_boundary<bf16>(8, 7);
}

TEST_CASE("f16: every pattern and every rounding boundary") {
  check_every_pattern<f16>(5, 10);
  check_every_boundary<f16>(5, 10);
}

TEST_CASE("half: overflow becomes infinity, NaN of any payload stays NaN") {
  const float huge = std::numeric_limits<float>::max(), infinity = std::numeric_limits<float>::infinity();
  CHECK(f16(65519.0F).bits == 0x7bff);
  CHECK(f16(65520.0F).bits == 0x7c00);
  CHECK(f16(huge).bits == 0x7c00);
  CHECK(f16(-infinity).bits == 0xfc00);
  CHECK(bf16(huge).bits == 0x7f80);
  CHECK(bf16(-infinity).bits == 0xff80);
  for (const std::uint32_t payload : {1U, 0x1fffU, 0x2000U, 0x400000U, 0x7fffffU}) {
    const auto nan = std::bit_cast<float>(0xff800000U | payload);
    CHECK(std::isnan(static_cast<float>(f16(nan))));
    CHECK(std::isnan(static_cast<float>(bf16(nan))));
  }
}
