// Products that pack B while its first tile is multiplied, and tiles that go straight to C: against plain loops in f64,
// and bit for bit against one chain of multiply-adds per element, which packing must not change.
// Read next: core/cpu/tile_product.h.
#include <doctest/doctest.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/cpu/pack.h"
#include "core/kernels.h"
#include "tests/products/reference.h"
#include "tests/support/sanitized.h"

namespace trireme {
namespace packing_test {
namespace {

using testing::random;
using testing::values;

/// c = alpha a b + beta c, a [M, K] or stored [K, M], b [K, N]; each in a matrix with longer rows.
struct Case {
  std::int64_t m, n, k;
  bool a_transposed = false;
  double beta = 0, alpha = 1;
  bool bias = false;
};

/// Layouts as in training: the rows of B and of a transposed A are contiguous along N and M.
constexpr std::array<Case, 14> cases = {{
    {.m = 1, .n = 32, .k = 7},
    {.m = 5, .n = 103, .k = 45},
    {.m = 13, .n = 64, .k = 1, .beta = 1},
    {.m = 15, .n = 97, .k = 33, .beta = 1},
    {.m = 29, .n = 130, .k = 64, .beta = 0.5},
    {.m = 57, .n = 160, .k = 50, .alpha = -2, .bias = true},
    {.m = 20, .n = 1500, .k = 700},             // several rounds of B
    {.m = 20, .n = 200, .k = 1500, .beta = 1},  // two blocks of K
    {.m = 20, .n = 200, .k = 1500, .bias = true},
    {.m = 33, .n = 32, .k = 7, .a_transposed = true},
    {.m = 103, .n = 41, .k = 45, .a_transposed = true, .beta = 1},
    {.m = 97, .n = 96, .k = 33, .a_transposed = true, .beta = 0.5, .alpha = 3},
    {.m = 1500, .n = 40, .k = 300, .a_transposed = true, .beta = 1},  // several rounds of A
    {.m = 200, .n = 33, .k = 1500, .a_transposed = true, .beta = 1},
}};

struct Operands {
  Tensor a, b, c, bias;
  Operands(const Case& x, DType dtype)
      : a(random({x.a_transposed ? x.k : x.m, (x.a_transposed ? x.m : x.k) + 5}, 1, dtype)),
        b(random({x.k, x.n + 3}, 2, dtype)),
        c(random({x.m, x.n + 1}, 3, dtype)) {
    a = view::slice(a, 1, 0, x.a_transposed ? x.m : x.k);
    if (x.a_transposed) a = view::transpose(a, 0, 1);
    b = view::slice(b, 1, 0, x.n);
    c = view::slice(c, 1, 0, x.n);
    if (x.bias) bias = random({x.n}, 4, dtype);
  }
  void multiply(const Case& x) { kernels(Device::cpu).gemm(a, b, c, {.alpha = x.alpha, .beta = x.beta, .bias = bias}); }
};

std::string describe(const Case& x, DType dtype) {
  return fmt::format("M={} N={} K={} {}{} alpha={} beta={} bias={}", x.m, x.n, x.k, name(dtype),
                     x.a_transposed ? " A transposed" : "", x.alpha, x.beta, x.bias);
}

/// |error| <= (K + 4) u sum |a b| (Higham 2002, section 3.1).
std::int64_t beyond_bound(const Case& x, DType dtype) {
  Operands o(x, dtype);
  const std::vector<double> a = values(o.a), b = values(o.b), before = values(o.c);
  const std::vector<double> bias = x.bias ? values(o.bias) : std::vector<double>(static_cast<std::size_t>(x.n), 0.0);
  o.multiply(x);
  const std::vector<double> got = values(o.c);
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < x.m; ++i) {
    for (std::int64_t j = 0; j < x.n; ++j) {
      const auto at = static_cast<std::size_t>(i * x.n + j);
      double sum = x.beta * before[at] + bias[static_cast<std::size_t>(j)];
      double size = std::fabs(x.beta * before[at]) + std::fabs(bias[static_cast<std::size_t>(j)]);
      for (std::int64_t k = 0; k < x.k; ++k) {
        const double term =
            x.alpha * a[static_cast<std::size_t>(i * x.k + k)] * b[static_cast<std::size_t>(k * x.n + j)];
        sum += term;
        size += std::fabs(term);
      }
      wrong += !(std::fabs(got[at] - sum) <= static_cast<double>(x.k + 4) * testing::rounding(dtype) * size);
    }
  }
  return wrong;
}

// Whether the compiler fuses a multiplication and an addition into one instruction. Under sanitizers it does not.
#if defined(__FMA__)
constexpr bool multiply_adds = !testing::sanitized;
#else
constexpr bool multiply_adds = false;
#endif

}  // namespace

TEST_CASE("products that pack while they multiply agree with a plain loop on ragged shapes") {
  for (const Case& x : cases) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      CAPTURE(describe(x, dtype));
      CHECK(beyond_bound(x, dtype) == 0);
    }
  }
}

TEST_CASE("products that pack while they multiply give the same bits for 1, 2, 3 and 5 threads") {
  for (const Case& x : cases) {
    CAPTURE(describe(x, DType::f32));
    std::vector<std::vector<double>> results;
    for (const int team : {1, 2, 3, 5}) {
      const testing::TeamOf scope(team);
      Operands o(x, DType::f32);
      o.multiply(x);
      results.push_back(values(o.c));
    }
    for (const std::vector<double>& each : results) CHECK(each == results.front());
  }
}

TEST_CASE("an element of an f32 product is one chain of multiply-adds for each block of K, in order") {
  if (!multiply_adds) return;
  for (const Case& x : cases) {
    if (x.alpha != 1 || x.bias || (x.beta != 0 && x.beta != 1)) continue;
    CAPTURE(describe(x, DType::f32));
    Operands o(x, DType::f32);
    const std::vector<double> a = values(o.a), b = values(o.b), before = values(o.c);
    o.multiply(x);
    const std::vector<double> got = values(o.c);
    const std::int64_t blocks = (x.k + 1023) / 1024;
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < x.m; ++i) {
      for (std::int64_t j = 0; j < x.n; ++j) {
        const auto at = static_cast<std::size_t>(i * x.n + j);
        float expected = 0;
        for (std::int64_t block = 0; block < blocks; ++block) {
          float sum = 0;
          for (std::int64_t k = x.k * block / blocks; k < x.k * (block + 1) / blocks; ++k)
            sum = std::fma(static_cast<float>(a[static_cast<std::size_t>(i * x.k + k)]),
                           static_cast<float>(b[static_cast<std::size_t>(k * x.n + j)]), sum);
          if (block > 0) {
            expected = sum + expected;
          } else {
            expected = x.beta == 0 ? sum : sum + static_cast<float>(before[at]);
          }
        }
        wrong += static_cast<double>(expected) != got[at];
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE_TEMPLATE("a tile's product leaves the panel that packing makes, and the same sums", T, float, double) {
  constexpr DType dtype = dtype_of<T>;
  constexpr std::int64_t width = cpu::tile_columns<T>, stride = 61;
  for (std::int64_t rows = 1; rows <= cpu::tile_rows; ++rows) {
    for (const std::int64_t depth : {0, 1, 2, 19}) {
      CAPTURE(rows);
      CAPTURE(depth);
      const Tensor a = random({depth + 1, stride}, 1, dtype), b = random({depth + 1, stride}, 2, dtype);
      std::vector<T> panel_a(static_cast<std::size_t>(cpu::panel_size<T>(rows, depth)));
      std::vector<T> panel_b(static_cast<std::size_t>(cpu::panel_size<T>(width, depth))), passed_b = panel_b;
      cpu::pack_rows(cpu::Strip<T>{a.data<T>(), rows, depth, 1, stride}, panel_a.data());
      cpu::pack_columns(cpu::Strip<T>{b.data<T>(), width, depth, 1, stride}, panel_b.data());
      std::array<T, cpu::tile_rows * width> expected, got;
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = got[i] = static_cast<T>(i);
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < width; ++j) {
          T sum = 0;
          for (std::int64_t k = 0; k < depth; ++k)
            sum = std::fma(a.data<T>()[k * stride + i], b.data<T>()[k * stride + j], sum);
          expected[static_cast<std::size_t>(i * width + j)] += sum;
        }
      }
      cpu::tile_product_packing_b<T>(rows, depth, panel_a.data(), b.data<T>(), stride, passed_b.data(),
                                     {.data = got.data(), .add = true});
      CHECK(std::equal(panel_b.begin(), panel_b.begin() + width * depth, passed_b.begin()));
      double difference = 0;
      for (std::size_t i = 0; i < expected.size(); ++i)
        testing::keep_largest(difference, std::fabs(static_cast<double>(expected[i] - got[i])));
      // Fused multiply-adds must give the exact bits. The bound for others: elements of at most tile_rows * width, sums
      // of 19 products.
      const double bound = static_cast<double>(expected.size()) * 24 * testing::rounding(dtype);
      CHECK(difference <= (multiply_adds ? 0 : bound));
    }
  }
}

}  // namespace packing_test
}  // namespace trireme
