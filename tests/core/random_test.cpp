// Philox against the published known answers of its authors' library, and the numbers made from it.
#include <doctest/doctest.h>

#include <cmath>

#include "core/random.h"

using namespace trireme;

TEST_CASE("philox4x32-10: the known answers of Random123") {
  using Words = std::array<std::uint32_t, 4>;
  CHECK(philox(0, 0, 0) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const std::uint64_t ones = ~std::uint64_t{0};
  CHECK(philox(ones, ones, ones) == Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  // Counter and key are digits of pi; the low word of each 64-bit argument comes first.
  CHECK(philox(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("random_uniform: in [0, 1), mean and variance of the uniform distribution, no dependence on neighbours") {
  constexpr int count = 1 << 16;
  double sum = 0, squares = 0, products = 0, previous = 0.5;
  for (std::uint64_t i = 0; i < count; ++i) {
    const double u = static_cast<double>(random_uniform(7, 3, i));
    REQUIRE(u >= 0);
    REQUIRE(u < 1);
    sum += u - 0.5;
    squares += (u - 0.5) * (u - 0.5);
    products += (u - 0.5) * (previous - 0.5);
    previous = u;
  }
  const double deviation = std::sqrt(1.0 / 12 / count);  // of the mean
  CHECK(std::abs(sum / count) < 4 * deviation);
  CHECK(squares / count == doctest::Approx(1.0 / 12).epsilon(0.02));
  CHECK(std::abs(products / count) < 4.0 / 12 / std::sqrt(count));
}

TEST_CASE("random_normal: mean 0, variance 1, kurtosis 3; a pure function of seed, stream and element") {
  constexpr int count = 1 << 16;
  double sum = 0, squares = 0, fourth = 0, of_element_123 = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const double z = random_normal(11, 5, i);
    if (i == 123) of_element_123 = z;
    sum += z;
    squares += z * z;
    fourth += z * z * z * z;
  }
  CHECK(std::abs(sum / count) < 4 / std::sqrt(count));
  CHECK(squares / count == doctest::Approx(1).epsilon(0.03));
  CHECK(fourth / count == doctest::Approx(3).epsilon(0.1));
  CHECK(random_normal(11, 5, 123) == of_element_123);  // also after the draws of other elements
  CHECK(random_normal(11, 6, 123) != of_element_123);
  CHECK(random_normal(12, 5, 123) != of_element_123);
}

TEST_CASE("stream_of: FNV-1a's published values") {
  CHECK(stream_of("") == 0xcbf29ce484222325U);
  CHECK(stream_of("a") == 0xaf63dc4c8601ec8cU);
  CHECK(stream_of("foobar") == 0x85944171f73967e8U);
}
