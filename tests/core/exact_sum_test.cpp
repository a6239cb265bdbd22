// Sums without rounding: the same words in any order and grouping, over the whole range of f64.
#include "core/exact_sum.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/random.h"

using namespace trireme;

namespace {

ExactSum sum_of(const std::vector<double>& xs) {
  ExactSum sum;
  for (const double x : xs) sum.add(x);
  sum.carry();
  return sum;
}

/// Numbers with exponents from -spread to spread.
std::vector<double> numbers(std::size_t count, int spread) {
  std::vector<double> xs;
  for (std::size_t i = 0; i < count; ++i) {
    const auto exponent = static_cast<int>(random_word(1, 2, i) % static_cast<unsigned>(2 * spread + 1)) - spread;
    xs.push_back(std::ldexp(random_uniform(1, 3, i), exponent));
  }
  return xs;
}

}  // namespace

TEST_CASE("an exact sum has the same words in any order and grouping") {
  for (const int spread : {0, 40, 300, 1000}) {
    std::vector<double> xs = numbers(5000, spread);
    const ExactSum forward = sum_of(xs);
    std::reverse(xs.begin(), xs.end());
    CHECK(sum_of(xs).all() == forward.all());
    std::sort(xs.begin(), xs.end());
    CHECK(sum_of(xs).all() == forward.all());
    ExactSum grouped, part;
    for (std::size_t i = 0; i < xs.size(); ++i) {
      part.add(xs[i]);
      if (i % 7 != 6) continue;
      grouped.add(part);
      part = {};
    }
    grouped.add(part);
    grouped.carry();
    CHECK(grouped.all() == forward.all());
    CHECK(grouped.value() == forward.value());
  }
}

TEST_CASE(
    "its value is the sum to a unit in the last place: one number, large and small ones, subnormals, the largest") {
  constexpr double least = std::numeric_limits<double>::denorm_min(), most = std::numeric_limits<double>::max();
  CHECK(ExactSum().value() == 0);
  for (const double x : {0.0, least, 3 * least, 0x1p-1022, 1.0, 1.0 / 3, 1e300, most}) CHECK(sum_of({x}).value() == x);
  for (const double x : numbers(1000, 1000)) CHECK(sum_of({x}).value() == x);
  CHECK(sum_of({1, 0x1p-60, 0x1p60}).value() == 0x1p60);
  CHECK(sum_of(std::vector<double>(1000, 0x1p-53)).value() == 1000 * 0x1p-53);
  CHECK(sum_of({most, most}).value() == INFINITY);
  long double expected = 0;
  const std::vector<double> xs = numbers(5000, 3);
  for (const double x : xs) expected += static_cast<long double>(x);
  CHECK(std::abs(sum_of(xs).value() - static_cast<double>(expected)) <= 0x1p-52 * static_cast<double>(expected));
}

TEST_CASE("infinity and NaN come through") {
  CHECK(sum_of({1, INFINITY, 2}).value() == INFINITY);
  CHECK(std::isnan(sum_of({1, NAN, INFINITY}).value()));
  ExactSum sum = sum_of({1});
  sum.add(sum_of({NAN}));
  CHECK(std::isnan(sum.value()));
}

TEST_CASE("words of many parties may be summed as integers: carries are made up for later") {
  ExactSum total;
  const ExactSum part = sum_of({1 - 0x1p-53, 0x1p-70});
  for (int i = 0; i < 1000; ++i)
    for (std::size_t w = 0; w < ExactSum::words; ++w) total.all()[w] += part.all()[w];
  ExactSum expected;
  for (int i = 0; i < 1000; ++i) {
    expected.add(1 - 0x1p-53);
    expected.add(0x1p-70);
  }
  total.carry();
  expected.carry();
  CHECK(total.all() == expected.all());
}
