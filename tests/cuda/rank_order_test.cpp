// Sums and maxima over ranks against a plain loop, bit for bit.
#include "cuda/kernels/rank_order.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "tests/cuda/support.h"

using namespace trireme;
using namespace cuda_test;

namespace rank_order_test {
namespace {

/// What the kernel must give for element i. A: the type in which the sum is kept.
template <class A, class T>
T expected(Reduction op, const Buffer<T>& x, std::size_t rows, std::size_t i) {
  const std::size_t count = x.size() / rows;
  A running = static_cast<A>(x.value(i));
  for (std::size_t row = 1; row < rows; ++row) {
    const A next = static_cast<A>(x.value(row * count + i));
    if (op == Reduction::sum)
      running = static_cast<A>(running + next);
    else if (next > running || next != next)  // NOLINT(misc-redundant-expression)
      running = next;
  }
  return static_cast<T>(running);
}

template <class A, class T>
int differences(const Buffer<T>& x, const Buffer<T>& y, Reduction op, std::size_t rows) {
  int found = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const T want = expected<A>(op, x, rows, i), got = y.value(i);
    found += std::memcmp(&want, &got, sizeof(T)) != 0 ? 1 : 0;
  }
  return found;
}

/// Sum and Max: the types in which they are kept.
template <class T, class Sum, class Max>
void check(const std::function<T(std::size_t)>& value) {
  for (const std::size_t rows : {1U, 2U, 5U}) {
    for (const std::size_t count : {1U, 16U, 37U, 5000U}) {
      CAPTURE(rows);
      CAPTURE(count);
      Buffer<T> x(rows * count, count % 3), sum(count, 1), max(count);
      for (std::size_t i = 0; i < x.size(); ++i) x.set(i, value(i));
      const auto n = static_cast<std::int64_t>(count);
      cuda::combine_in_order(dtype_of<T>, Reduction::sum, x.data(), static_cast<int>(rows), n, sum.data());
      cuda::combine_in_order(dtype_of<T>, Reduction::max, x.data(), static_cast<int>(rows), n, max.data());
      CHECK(differences<Sum>(x, sum, Reduction::sum, rows) == 0);
      CHECK(differences<Max>(x, max, Reduction::max, rows) == 0);
    }
  }
}

float random_float(std::size_t i) { return random_uniform(5, 2, i) - 0.5F; }

}  // namespace

TEST_CASE("cuda sums over ranks are taken in rank order") {
  under_schedule(1, [] {
    check<float, float, float>([](std::size_t i) { return random_float(i); });
    check<double, double, double>([](std::size_t i) { return static_cast<double>(random_float(i)) / 3; });
    check<bf16, float, float>([](std::size_t i) { return bf16(random_float(i)); });
    check<f16, float, float>([](std::size_t i) { return f16(random_float(i)); });
    const auto bits = [](std::size_t i) {  // anywhere in the range: sums overflow
      return (std::uint64_t{philox(3, 4, i)[0]} << 32) | philox(3, 4, i)[1];
    };
    check<std::int64_t, std::uint64_t, std::int64_t>([&](std::size_t i) { return static_cast<std::int64_t>(bits(i)); });
    check<std::int32_t, std::uint32_t, std::int32_t>([&](std::size_t i) { return static_cast<std::int32_t>(bits(i)); });
    check<std::uint8_t, std::uint8_t, std::uint8_t>([&](std::size_t i) { return static_cast<std::uint8_t>(bits(i)); });
  });
}

TEST_CASE("cuda sums over ranks keep NaN, infinity and the sign of zero") {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = INFINITY;
  Buffer<float> x({nan, 1, -0.0F, inf, 1, nan, -0.0F, -inf}), sum(4), max(4);
  cuda::combine_in_order(DType::f32, Reduction::sum, x.data(), 2, 4, sum.data());
  cuda::combine_in_order(DType::f32, Reduction::max, x.data(), 2, 4, max.data());
  CHECK(
      (std::isnan(sum.value(0)) && std::isnan(sum.value(1)) && std::signbit(sum.value(2)) && std::isnan(sum.value(3))));
  CHECK((std::isnan(max.value(0)) && std::isnan(max.value(1)) && std::signbit(max.value(2)) && max.value(3) == inf));
}

TEST_CASE("cuda sums over ranks may end in one of the rows") {
  Buffer<float> x({1, 2, 3, 10, 20, 30});
  cuda::combine_in_order(DType::f32, Reduction::sum, x.data(), 2, 3, x.data() + 3);
  CHECK((x.value(0) == 1 && x.value(3) == 11 && x.value(4) == 22 && x.value(5) == 33));
}

}  // namespace rank_order_test
