// top_k against a stable sort.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cuda/kernels/top_k.h"
#include "tests/cuda/support.h"

using namespace trireme;
using namespace trireme::cuda;
using namespace cuda_test;

namespace top_k_test {
namespace {

/// x [rows, width], at an address that is aligned and at one that is not.
template <class T>
void check_choice(const std::vector<T>& x, std::size_t width, std::size_t k) {
  CAPTURE(fmt::format("{} of {}", k, width));
  const std::size_t rows = x.size() / width;
  for (const std::size_t offset : {0U, 1U}) {
    Buffer<T> from(x.size(), offset);
    Buffer<std::int32_t> chosen(rows * k);
    for (std::size_t i = 0; i < x.size(); ++i) from.set(i, x[i]);
    top_k(from.data(), chosen.data(), static_cast<std::int64_t>(rows), static_cast<std::int64_t>(width),
          static_cast<std::int64_t>(k));
    for (std::size_t row = 0; row < rows; ++row) {
      std::vector<std::size_t> order(width);
      std::iota(order.begin(), order.end(), row * width);
      std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        const auto u = static_cast<float>(x[a]), v = static_cast<float>(x[b]);
        return u > v || (std::isnan(u) && !std::isnan(v));
      });
      for (std::size_t i = 0; i < k; ++i)
        CHECK(static_cast<std::size_t>(chosen.value(row * k + i)) == order[i] - row * width);
    }
  }
}

/// Few different values, so that many are equal.
template <class T>
void check_top_k(std::size_t rows, std::size_t width, std::size_t k) {
  std::vector<T> x;
  for (std::size_t i = 0; i < rows * width; ++i)
    x.emplace_back(static_cast<float>(std::floor(20 * random_uniform(4, 1, i)) - 10));
  if (width > 2) x[2] = T(-INFINITY);
  check_choice(x, width, k);
}

}  // namespace

TEST_CASE_TEMPLATE("cuda top_k: the largest in order, of equals the lower column", T, float, bf16, f16) {
  under_schedules([] {
    check_top_k<T>(1, 1, 1);
    check_top_k<T>(11, 8, 2);
    check_top_k<T>(9, 64, 2);
    check_top_k<T>(3, 70, 70);
    check_top_k<T>(1, 256, 3);
    check_top_k<T>(2, 300, 6);
  });
  CHECK(cuda_test::error_of([] { top_k<T>(nullptr, nullptr, 1, 4, 5); }).find("5 of 4") != std::string::npos);
}

TEST_CASE_TEMPLATE("cuda top_k: signs, zeros and NaN of both signs, and infinities", T, float, bf16, f16) {
  const std::vector<float> values = {-0.0F, 0.0F, -1,        INFINITY, -INFINITY, -2,   1,
                                     -0.0F, 3,    -INFINITY, 0.5F,     -0.5F,     -NAN, NAN};
  for (const std::size_t width : {values.size(), std::size_t{320}}) {
    std::vector<T> x;
    for (std::size_t i = 0; i < width; ++i) x.emplace_back(values[i % values.size()]);
    check_choice(x, width, width);
  }
}

}  // namespace top_k_test
