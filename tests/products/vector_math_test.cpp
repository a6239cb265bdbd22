// exp, tanh and erf against the standard library in f64, swept over their range in units in the last place.
#include "core/cpu/vector_math.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "core/cpu/normal_distribution.h"
#include "core/cpu/vector_rows.h"
#include "tests/support/largest.h"

namespace trireme {
namespace vector_math_test {
namespace {

/// Distance in ulps of a float result from the exact one.
double ulps(float got, double exact) {
  int exponent = 0;
  std::frexp(exact, &exponent);
  return std::fabs(static_cast<double>(got) - exact) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

template <class Function, class Exact>
double worst(double low, double high, Function function, Exact exact) {
  constexpr int count = 200'000;
  std::vector<float> x(count), y(count);
  for (int i = 0; i < count; ++i)
    x[static_cast<std::size_t>(i)] = static_cast<float>(low + (high - low) * i / (count - 1));
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = function(x[i]);
  double result = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    testing::keep_largest(result, ulps(y[i], exact(static_cast<double>(x[i]))));
  return result;
}

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_CASE("exp_approx is within 1.5 ulp, down to subnormal results") {
  const auto function = [](float x) { return exp_approx(x); };
  const auto exact = [](double x) { return std::exp(x); };
  CHECK(worst(-1, 1, function, exact) < 1.5);
  CHECK(worst(-103.9, 88.72, function, exact) < 1.5);
  CHECK(exp_approx(0.0F) == 1.0F);
  CHECK(exp_approx(-infinity) == 0.0F);
  CHECK(exp_approx(-200.0F) == 0.0F);
  CHECK(exp_approx(88.8F) == infinity);
  CHECK(exp_approx(infinity) == infinity);
  CHECK(std::isnan(exp_approx(nan)));
}

TEST_CASE("tanh_approx is within 2 ulp") {
  const auto function = [](float x) { return tanh_approx(x); };
  const auto exact = [](double x) { return std::tanh(x); };
  for (const double range : {1e-6, 1e-3, 1.0, 10.0}) CHECK(worst(-range, range, function, exact) < 2);
  CHECK(tanh_approx(infinity) == 1.0F);
  CHECK(tanh_approx(-infinity) == -1.0F);
  CHECK(std::isnan(tanh_approx(nan)));
}

TEST_CASE("erf_approx is within 2 ulp") {
  const auto function = [](float x) { return erf_approx(x); };
  const auto exact = [](double x) { return std::erf(x); };
  for (const double range : {1e-6, 1e-3, 1.1, 5.0}) CHECK(worst(-range, range, function, exact) < 2);
  CHECK(erf_approx(infinity) == 1.0F);
  CHECK(erf_approx(-infinity) == -1.0F);
  CHECK(std::isnan(erf_approx(nan)));
}

TEST_CASE("Vectors: functions and the conversion to bf16 have the bits of the scalar functions") {
  using cpu::lanes, cpu::Vector;
  Vector<float> x;
  bf16 rounded[lanes<float>];
  int different = 0;
  const auto compare = [&](float scalar, float of_vector) {
    different += std::isnan(scalar) ? !std::isnan(of_vector)
                                    : std::bit_cast<std::uint32_t>(scalar) != std::bit_cast<std::uint32_t>(of_vector);
  };
  for (std::uint64_t bits = 0; bits < 1ULL << 32; bits += 2503) {  // a prime: a million of all numbers
    const auto at = static_cast<int>(bits % lanes<float>);
    for (int i = 0; i < lanes<float>; ++i) x[i] = 0.5F;
    x[at] = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    cpu::store(rounded, x);
    compare(exp_approx(x[at]), exp_approx(x)[at]);
    compare(tanh_approx(x[at]), tanh_approx(x)[at]);
    compare(erf_approx(x[at]), erf_approx(x)[at]);
    compare(cpu::normal_point(x[at]).cdf, cpu::normal_point(x).cdf[at]);
    compare(cpu::normal_point(x[at]).pdf, cpu::normal_point(x).pdf[at]);
    different += rounded[at].bits != bf16(x[at]).bits;
  }
  CHECK(different == 0);
}

}  // namespace vector_math_test
}  // namespace trireme
