// Grouped products against plain f64 loops: ragged groups, empty ones, groups for one thread and for all, every dtype
// and implementation, and the same bits with any number of threads.
//
// The bound: see tests/products/gemm_test.cpp.
#include <doctest/doctest.h>

#include <limits>

#include "core/kernels.h"
#include "tests/products/each_product.h"
#include "tests/products/reference.h"

namespace trireme {
namespace grouped_test {
namespace {

using testing::random;
using testing::TeamOf;
using testing::values;
using Starts = std::vector<std::int64_t>;

Starts starts_of(const std::vector<std::int64_t>& lengths) {
  Starts starts = {0};
  for (const std::int64_t length : lengths) starts.push_back(starts.back() + length);
  return starts;
}

double at(const std::vector<double>& x, std::int64_t index) { return x[static_cast<std::size_t>(index)]; }

/// Counts results outside the bound for `sum`, a sum of `terms` products whose absolute values add up to `size`,
/// rounded to c's dtype.
struct Judge {
  DType in, out;
  std::int64_t wrong = 0;
  void operator()(double got, double sum, double size, std::int64_t terms) {
    const double bound = (static_cast<double>(terms) + 4) * testing::rounding(testing::accumulator(in)) * size +
                         1.01 * testing::rounding(out) * std::fabs(sum) + 1e-30;
    if (!(std::fabs(got - sum) <= bound)) ++wrong;
  }
};

/// y = x @ matrices[g] + bias[g], with the matrices stored transposed or not.
Tensor check_rows(const std::vector<std::int64_t>& lengths, std::int64_t k, std::int64_t n, DType dtype,
                  bool transposed, bool with_bias) {
  const Starts starts = starts_of(lengths);
  const auto groups = static_cast<std::int64_t>(lengths.size());
  const std::int64_t rows = starts.back();
  const Tensor x = random({rows, k}, 1, dtype);
  const Tensor matrices =
      transposed ? view::transpose(random({groups, n, k}, 2, dtype), 1, 2) : random({groups, k, n}, 2, dtype);
  const Tensor bias = with_bias ? random({groups, n}, 3, dtype) : Tensor();
  Tensor y = Tensor::full({rows, n}, std::numeric_limits<double>::quiet_NaN(), dtype);
  kernels(Device::cpu).grouped_gemm(x, matrices, bias, starts, y);
  const std::vector<double> a = values(x), b = values(matrices), c = values(y);
  const std::vector<double> add = with_bias ? values(bias) : std::vector<double>(static_cast<std::size_t>(groups * n));
  Judge judge{dtype, dtype};
  for (std::int64_t g = 0; g < groups; ++g) {
    for (std::int64_t r = starts[static_cast<std::size_t>(g)]; r < starts[static_cast<std::size_t>(g) + 1]; ++r) {
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = at(add, g * n + j), size = std::fabs(sum);
        for (std::int64_t i = 0; i < k; ++i) {
          const double term = at(a, r * k + i) * at(b, (g * k + i) * n + j);
          sum += term;
          size += std::fabs(term);
        }
        judge(at(c, r * n + j), sum, size, k);
      }
    }
  }
  CHECK(judge.wrong == 0);
  return y;
}

/// c[g] = a^T b over the rows of group g, added to c if `accumulate`.
Tensor check_sums(const std::vector<std::int64_t>& lengths, std::int64_t m, std::int64_t n, DType in, DType out,
                  bool accumulate) {
  const Starts starts = starts_of(lengths);
  const auto groups = static_cast<std::int64_t>(lengths.size());
  const Tensor a = random({starts.back(), m}, 1, in), b = random({starts.back(), n}, 2, in);
  Tensor c = accumulate ? random({groups, m, n}, 3, out)
                        : Tensor::full({groups, m, n}, std::numeric_limits<double>::quiet_NaN(), out);
  const std::vector<double> left = values(a), right = values(b), before = values(c);
  kernels(Device::cpu).grouped_gemm_tn(a, b, starts, accumulate, c);
  const std::vector<double> got = values(c);
  Judge judge{in, out};
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t begin = starts[static_cast<std::size_t>(g)], end = starts[static_cast<std::size_t>(g) + 1];
    for (std::int64_t i = 0; i < m * n; ++i) {
      double sum = accumulate ? at(before, g * m * n + i) : 0, size = std::fabs(sum);
      for (std::int64_t r = begin; r < end; ++r) {
        const double term = at(left, r * m + i / n) * at(right, r * n + i % n);
        sum += term;
        size += std::fabs(term);
      }
      judge(at(got, g * m * n + i), sum, size, end - begin);
    }
  }
  CHECK(judge.wrong == 0);
  return c;
}

}  // namespace

TEST_CASE("grouped products: rows of ragged and empty groups, in every dtype and layout") {
  testing::for_each_product([] {
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
      CAPTURE(selected_gemm());
      CAPTURE(name(dtype));
      if (!testing::selected_computes(dtype)) continue;
      for (const bool transposed : {false, true}) {
        for (const bool bias : {false, true}) {
          check_rows({5, 0, 1, 40, 0}, 33, 17, dtype, transposed, bias);
          check_rows({0, 70, 9}, 8, 1, dtype, transposed, bias);
          check_rows({0, 0}, 4, 4, dtype, transposed, bias);
        }
      }
    }
  });
}

TEST_CASE("grouped products: sums over ragged and empty groups, overwriting or adding") {
  testing::for_each_product([] {
    for (const auto& [in, out] : {std::pair{DType::f32, DType::f32},
                                  {DType::f64, DType::f64},
                                  {DType::bf16, DType::f32},
                                  {DType::bf16, DType::bf16},
                                  {DType::f16, DType::f32}}) {
      CAPTURE(selected_gemm());
      CAPTURE(name(in));
      if (!testing::selected_computes(in)) continue;
      for (const bool accumulate : {false, true}) {
        check_sums({5, 0, 1, 40, 0}, 33, 17, in, out, accumulate);
        check_sums({0, 0}, 3, 5, in, out, accumulate);
      }
    }
  });
}

TEST_CASE("grouped products: large groups for all threads and small ones shared out, the same bits for any number") {
  // 2 * 300 * 256 * 160 FLOPs are enough for all threads, 2 * 64 * 256 * 160 are not.
  const std::vector<std::int64_t> lengths = {300, 64, 0, 1, 9, 310, 30, 20, 77};
  std::vector<Tensor> rows, sums;
  for (const int team : {1, 2, 3}) {
    const TeamOf threads(team);
    rows.push_back(check_rows(lengths, 256, 160, DType::f32, true, true));
    sums.push_back(check_sums(lengths, 256, 160, DType::bf16, DType::f32, true));
  }
  for (std::size_t i = 1; i < rows.size(); ++i) {
    CHECK(values(rows[i]) == values(rows[0]));
    CHECK(values(sums[i]) == values(sums[0]));
  }
}

}  // namespace grouped_test
}  // namespace trireme
