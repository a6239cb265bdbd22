// keep_largest of the tests: an error that is NaN must fail a test whatever comes before and after it.
#include "tests/support/elements.h"

#include <limits>

using trireme::testing::keep_largest;
using trireme::testing::largest_difference;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

double largest_of(const std::vector<double>& errors) {
  double largest = 0;
  for (const double error : errors) keep_largest(largest, error);
  return largest;
}

}  // namespace

TEST_CASE("keep_largest keeps the largest, and is infinite once it has seen NaN") {
  CHECK(largest_of({}) == 0);
  CHECK(largest_of({1, 3, 2}) == 3);
  CHECK(largest_of({-1}) == 0);
  CHECK(largest_of({1, infinity, 2}) == infinity);
  CHECK(largest_of({not_a_number}) == infinity);
  CHECK(largest_of({1, not_a_number, 2}) == infinity);
  CHECK(largest_of({-not_a_number, 1}) == infinity);
  double begun_with_nan = not_a_number;
  keep_largest(begun_with_nan, 1);
  CHECK(begun_with_nan == infinity);
}

TEST_CASE("largest_difference is infinite if an element is NaN on one side") {
  CHECK(largest_difference({1, 2}, {1, 4}) == 0.5);
  CHECK(largest_difference({not_a_number, 4}, {1, 4}) == infinity);
  CHECK(largest_difference({1, not_a_number}, {1, 4}) == infinity);
  CHECK(largest_difference({1, 4}, {not_a_number, 4}) == infinity);
}
