// gemm against a plain f64 loop: every implementation, dtype, layout and epilogue, on shapes that fit no tile.
//
// The bound is the textbook one for a sum of K products in any order (Higham 2002, section 3.1):
// |error| <= (K + 4) u sum |a b|, with u the accumulator's rounding, plus one rounding to the dtype of c.
#include <doctest/doctest.h>

#include <array>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>

#include "core/kernels.h"
#include "tests/products/each_product.h"
#include "tests/products/reference.h"
#include "tests/products/units.h"
#include "tests/support/sanitized.h"

namespace trireme {
namespace gemm_test {
namespace {

using testing::for_each_unit;
using testing::random;
using testing::same_bits;
using testing::values;

struct Case {
  std::int64_t m, n, k;
  DType in = DType::f32, out = DType::f32;
  bool a_transposed = false, b_transposed = false;
  double alpha = 1, beta = 0;
  bool bias = false;
  Shape leading = {};
  bool repeat_a = false, repeat_b = false;
};

std::string describe(const Case& x) {
  return fmt::format("M={} N={} K={} {}->{} {}{} alpha={} beta={} bias={} leading={}", x.m, x.n, x.k, name(x.in),
                     name(x.out), x.a_transposed ? 'T' : 'N', x.b_transposed ? 'T' : 'N', x.alpha, x.beta, x.bias,
                     to_string(x.leading));
}

Shape joined(const Shape& leading, std::int64_t rows, std::int64_t columns) {
  std::vector<std::int64_t> extents(leading.begin(), leading.end());
  extents.push_back(rows);
  extents.push_back(columns);
  return Shape(std::span<const std::int64_t>(extents));
}

/// [leading.., rows, columns], stored with 3 unused elements per row; optionally a transpose, or one matrix repeated.
Tensor operand(const Shape& leading, std::int64_t rows, std::int64_t columns, bool transposed, bool repeat, DType dtype,
               std::uint64_t stream) {
  const Shape stored = repeat ? Shape{} : leading;
  Tensor x = transposed ? random(joined(stored, columns, rows + 3), stream, dtype)
                        : random(joined(stored, rows, columns + 3), stream, dtype);
  x = view::slice(x, x.dims() - 1, 0, transposed ? rows : columns);
  if (transposed) x = view::transpose(x, x.dims() - 2, x.dims() - 1);
  return repeat ? view::expand(x, joined(leading, rows, columns)) : x;
}

struct Operands {
  Tensor a, b, c, bias;
  explicit Operands(const Case& x)
      : a(operand(x.leading, x.m, x.k, x.a_transposed, x.repeat_a, x.in, 1)),
        b(operand(x.leading, x.k, x.n, x.b_transposed, x.repeat_b, x.in, 2)),
        c(operand(x.leading, x.m, x.n, false, false, x.out, 3)) {
    if (x.bias) bias = random({x.n}, 4, x.in);
  }
};

void check(const Case& x) {
  if (!testing::selected_computes(x.in)) return;
  CAPTURE(describe(x));
  CAPTURE(selected_gemm());
  Operands o(x);
  const std::vector<double> a = values(o.a), b = values(o.b), before = values(o.c);
  const std::vector<double> bias = x.bias ? values(o.bias) : std::vector<double>(static_cast<std::size_t>(x.n), 0.0);
  kernels(Device::cpu).gemm(o.a, o.b, o.c, {.alpha = x.alpha, .beta = x.beta, .bias = o.bias});
  const std::vector<double> got = values(o.c);
  const double unit = testing::rounding(testing::accumulator(x.in)), out_unit = testing::rounding(x.out);
  const std::int64_t batch = x.leading.count();
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < batch * x.m * x.n; ++i) {
    const std::int64_t index = i / (x.m * x.n), row = i / x.n % x.m, column = i % x.n;
    double sum = 0, size = 0;
    for (std::int64_t k = 0; k < x.k; ++k) {
      const double term = x.alpha * a[static_cast<std::size_t>((index * x.m + row) * x.k + k)] *
                          b[static_cast<std::size_t>((index * x.k + k) * x.n + column)];
      sum += term;
      size += std::fabs(term);
    }
    const double kept = x.beta == 0 ? 0 : x.beta * before[static_cast<std::size_t>(i)];
    const double add = bias[static_cast<std::size_t>(column)];
    const double expected = sum + kept + add;
    const double bound = (static_cast<double>(x.k) + 4) * unit * (size + std::fabs(kept) + std::fabs(add)) +
                         1.01 * out_unit * std::fabs(expected) + 1e-30;
    if (!(std::fabs(got[static_cast<std::size_t>(i)] - expected) <= bound) && wrong++ == 0) {
      MESSAGE("first wrong element ", i, ": expected ", expected, ", got ", got[static_cast<std::size_t>(i)]);
    }
  }
  CHECK(wrong == 0);
}

/// Runs `body` once for each implementation.
template <class Body>
void for_each_product(Body&& body) {
  testing::for_each_product([&] { selected_gemm() == "trireme" ? for_each_unit(body) : body(); });
}

struct Types {
  DType in, out;
};
constexpr std::array<Types, 6> all_types = {{{DType::f64, DType::f64},
                                             {DType::f32, DType::f32},
                                             {DType::bf16, DType::bf16},
                                             {DType::bf16, DType::f32},
                                             {DType::f16, DType::f16},
                                             {DType::f16, DType::f32}}};

}  // namespace

TEST_CASE("gemm agrees with a plain loop on ragged shapes, in every layout and dtype") {
  for_each_product([] {
    for (const auto [in, out] : all_types) {
      for (int layout = 0; layout < 4; ++layout) {
        const bool at = layout / 2 == 1, bt = layout % 2 == 1;
        check({.m = 1, .n = 1, .k = 1, .in = in, .out = out, .a_transposed = at, .b_transposed = bt});
        check({.m = 17, .n = 33, .k = 19, .in = in, .out = out, .a_transposed = at, .b_transposed = bt});
        check({.m = 29,
               .n = 70,
               .k = 45,
               .in = in,
               .out = out,
               .a_transposed = at,
               .b_transposed = bt,
               .alpha = 0.5,
               .beta = 1,
               .bias = true});
      }
    }
  });
}

TEST_CASE("gemm with every number of rows and columns up to two tiles") {
  for_each_product([] {
    for (std::int64_t m = 1; m <= 30; ++m) check({.m = m, .n = 20, .k = 9, .b_transposed = m % 2 == 0});
    for (std::int64_t n = 1; n <= 66; ++n)
      check({.m = 5, .n = n, .k = 18, .a_transposed = n % 2 == 0, .b_transposed = n % 3 == 0});
  });
}

TEST_CASE("gemm of bf16 with every number of rows, columns and steps up to two tiles") {
  for_each_unit([] {
    const auto bf16_case = [](std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t i) {
      check({.m = m,
             .n = n,
             .k = k,
             .in = DType::bf16,
             .out = i % 3 == 0 ? DType::f32 : DType::bf16,
             .a_transposed = i % 2 == 0,
             .b_transposed = i % 5 < 2});
    };
    for (std::int64_t i = 1; i <= 66; ++i) {
      bf16_case(i, 37, 41, i);
      bf16_case(33, i, 35, i + 1);
      bf16_case(34, 18, i, i + 2);
    }
    bf16_case(40, 50, 2100, 3);  // several blocks of K
    bf16_case(40, 50, 2100, 4);
  });
}

TEST_CASE("gemm of bf16 whose rows are multiplied where they are, whose tiles take turns, or go straight to C") {
  for_each_unit([] {
    for (const DType out : {DType::bf16, DType::f32}) {
      for (const std::int64_t k : {32, 256, 288, 544}) {
        for (const bool bias : {false, true}) {
          check({.m = 96, .n = 64, .k = k, .in = DType::bf16, .out = out, .bias = bias});
          check({.m = 64, .n = 129, .k = k, .in = DType::bf16, .out = out, .b_transposed = true, .bias = bias});
        }
        check({.m = 64, .n = 96, .k = k, .in = DType::bf16, .out = out, .a_transposed = true, .beta = 1});
      }
      check({.m = 64, .n = 64, .k = 2112, .in = DType::bf16, .out = out});  // several blocks of K
    }
    if (testing::sanitized) return;
    for (const std::int64_t k : {64, 288})  // C is large: panels of the private operand pass by the shared one
      check({.m = 296, .n = 232, .k = k, .in = DType::bf16, .out = DType::bf16});
  });
}

TEST_CASE("gemm rounds its sums to bf16 as Tensor::to does, NaN and infinity too") {
  for_each_unit([] {
    const Tensor a = random({40, 64}, 1, DType::bf16), b = random({64, 70}, 2, DType::bf16),
                 bias = random({70}, 3, DType::bf16);
    a.data<bf16>()[3 * 64 + 5] = bf16(std::numeric_limits<float>::quiet_NaN());
    a.data<bf16>()[7 * 64 + 9] = bf16(std::numeric_limits<float>::infinity());
    a.data<bf16>()[8 * 64 + 9] = bf16(-std::numeric_limits<float>::infinity());
    Tensor sums = Tensor::empty({40, 70}, DType::f32), rounded = Tensor::empty({40, 70}, DType::bf16);
    for (const Tensor& added : {Tensor(), bias}) {
      kernels(Device::cpu).gemm(a, b, sums, {.bias = added});
      kernels(Device::cpu).gemm(a, b, rounded, {.bias = added});
      const std::vector<double> got = values(rounded), wide = values(sums);
      for (std::size_t i = 0; i < got.size(); ++i) {
        const double expected = static_cast<float>(bf16(static_cast<float>(wide[i])));
        REQUIRE((got[i] == expected || (std::isnan(got[i]) && std::isnan(expected))));
      }
    }
  });
}

TEST_CASE("gemm of few rows with a transposed matrix, as in generation") {
  for_each_product([] {
    for (const auto [in, out] : all_types) {
      for (const std::int64_t m : {1, 3, 4, 8, 9}) {
        check({.m = m,
               .n = 67,
               .k = 77,
               .in = in,
               .out = out,
               .b_transposed = true,
               .alpha = 2,
               .beta = 0.5,
               .bias = true});
        check({.m = m, .n = 5, .k = 3, .in = in, .out = out, .a_transposed = true, .b_transposed = true});
      }
    }
  });
}

TEST_CASE("gemm adds alpha, beta and bias in every combination") {
  for_each_product([] {
    for (const auto [in, out] : all_types) {
      for (const double alpha : {1.0, -2.5}) {
        for (const double beta : {0.0, 1.0, 0.75}) {
          for (const bool bias : {false, true}) {
            check({.m = 15,
                   .n = 37,
                   .k = 21,
                   .in = in,
                   .out = out,
                   .b_transposed = true,
                   .alpha = alpha,
                   .beta = beta,
                   .bias = bias});
          }
        }
      }
    }
  });
}

TEST_CASE("gemm over several blocks of K, rows and columns" * doctest::test_suite("thorough")) {
  for_each_product([] {
    for (const auto [in, out] : all_types) {
      check({.m = 23, .n = 41, .k = 1500, .in = in, .out = out, .b_transposed = true, .beta = 0.5, .bias = true});
    }
    check({.m = 40, .n = 1500, .k = 1100, .in = DType::bf16, .out = DType::bf16, .bias = true});
    if (testing::sanitized) return;
    check({.m = 300, .n = 40, .k = 1030});
    check({.m = 20, .n = 3000, .k = 600, .a_transposed = true, .beta = 1});
    check({.m = 40, .n = 1500, .k = 2100, .b_transposed = true});  // all threads pack A, each packs its own B
    check({.m = 600, .n = 620, .k = 1030, .in = DType::f64, .out = DType::f64});  // more than one block of A
  });
}

TEST_CASE("gemm over leading dims, some repeated") {
  for_each_product([] {
    const Shape leading = {2, 3};
    for (const bool repeat_a : {false, true}) {
      for (const bool repeat_b : {false, true}) {
        check({.m = 9,
               .n = 35,
               .k = 11,
               .b_transposed = true,
               .beta = 1,
               .bias = true,
               .leading = leading,
               .repeat_a = repeat_a,
               .repeat_b = repeat_b});
      }
    }
    check({.m = 70, .n = 80, .k = 90, .leading = {2}});
    // Dense activations [B, T, D] against one weight become a single product.
    const Tensor a = random({3, 5, 12}, 1, DType::f32), b = random({12, 40}, 2, DType::f32);
    Tensor c = Tensor::empty({3, 5, 40}), one = Tensor::empty({15, 40});
    kernels(Device::cpu).gemm(a, view::expand(b, {3, 12, 40}), c, {});
    kernels(Device::cpu).gemm(view::reshape(a, {15, 12}), b, one, {});
    CHECK(same_bits(view::reshape(c, {15, 40}), one));
  });
}

TEST_CASE("gemm takes a matrix whose rows are one row repeated") {
  for_each_product([] {
    const Tensor row = random({1, 24}, 1, DType::f32), b = random({24, 40}, 2, DType::f32);
    Tensor c = Tensor::empty({18, 40}), expected = Tensor::empty({18, 40});
    kernels(Device::cpu).gemm(view::expand(row, {18, 24}), b, c, {});
    kernels(Device::cpu).gemm(clone(view::expand(row, {18, 24})), b, expected, {});
    CHECK(same_bits(c, expected));
  });
}

namespace {

/// Runs the selected product with teams of these sizes. All must give the bits of the first.
void check_teams(std::span<const Case> cases, std::initializer_list<int> teams) {
  for (const Case& x : cases) {
    if (!testing::selected_computes(x.in)) continue;
    CAPTURE(describe(x));
    CAPTURE(selected_gemm());
    Tensor first;
    for (const int team : teams) {
      CAPTURE(team);
      const testing::TeamOf scope(team);
      Operands o(x);
      kernels(Device::cpu).gemm(o.a, o.b, o.c, {.alpha = x.alpha, .beta = x.beta, .bias = o.bias});
      if (first.defined()) CHECK(same_bits(first, o.c));
      if (!first.defined()) first = o.c;
    }
  }
}

}  // namespace

TEST_CASE("gemm gives the same bits for 1, 2 and 3 threads") {
  const std::array<Case, 9> cases = {{
      {.m = 97, .n = 130, .k = 80, .b_transposed = true},
      {.m = 97, .n = 130, .k = 1100, .a_transposed = true, .beta = 1},
      {.m = 97, .n = 130, .k = 1100, .in = DType::bf16, .out = DType::bf16, .bias = true},
      {.m = 300, .n = 64, .k = 70, .in = DType::f64, .out = DType::f64},
      {.m = 60, .n = 700, .k = 1100, .in = DType::bf16, .out = DType::bf16, .beta = 1},
      {.m = 2, .n = 900, .k = 200, .b_transposed = true},
      {.m = 40, .n = 50, .k = 60, .leading = {5}},
      {.m = 128, .n = 512, .k = 768, .a_transposed = true, .beta = 1},
      {.m = 33, .n = 1100, .k = 1300, .beta = 1},  // each thread packs all of A for itself
  }};
  for_each_product([&] { check_teams(cases, {1, 2, 3}); });
}

TEST_CASE("gemm by more threads than there is work to share gives the bits of one thread") {
  // Enough FLOPs for a team (core/cpu/partition.h), on a panel or two of A and B.
  const std::array<Case, 7> cases = {{
      {.m = 12, .n = 32, .k = 512},
      {.m = 12, .n = 32, .k = 512, .a_transposed = true, .beta = 1},
      {.m = 32, .n = 8, .k = 2048, .b_transposed = true},
      {.m = 32, .n = 8, .k = 2048, .a_transposed = true, .beta = 1},
      {.m = 8, .n = 8, .k = 2100, .in = DType::bf16, .out = DType::bf16, .bias = true},
      {.m = 29, .n = 65, .k = 300, .in = DType::f16, .out = DType::f32},
      {.m = 256, .n = 64, .k = 64, .in = DType::f64, .out = DType::f64, .b_transposed = true},
  }};
  for_each_product([&] { for_each_unit([&] { check_teams(cases, {1, 2, 3, 7, 24}); }); });
}

TEST_CASE("gemm with beta = 0 ignores NaN in c; NaN and infinity in a and b come through") {
  for_each_product([] {
    for (const std::int64_t k : {7, 1100}) {
      const Tensor a = random({20, k}, 1, DType::f32), b = random({k, 40}, 2, DType::f32);
      Tensor c = Tensor::full({20, 40}, std::numeric_limits<double>::quiet_NaN());
      kernels(Device::cpu).gemm(a, b, c, {});
      for (const double x : values(c)) REQUIRE(std::isfinite(x));
      a.data<float>()[3 * k + 2] = std::numeric_limits<float>::quiet_NaN();
      kernels(Device::cpu).gemm(a, b, c, {});
      const std::vector<double> got = values(c);
      for (std::size_t i = 0; i < got.size(); ++i) REQUIRE(std::isnan(got[i]) == (i / 40 == 3));
    }
  });
}

TEST_CASE("gemm of no products: K = 0 leaves beta c + bias, empty c is left alone") {
  for_each_product([] {
    check({.m = 5, .n = 40, .k = 0, .beta = 0.5, .bias = true});
    check({.m = 5, .n = 40, .k = 0, .in = DType::bf16, .out = DType::bf16});
    check({.m = 0, .n = 40, .k = 3});
    check({.m = 4, .n = 0, .k = 3});
  });
}

TEST_CASE("gemm asks the system for no memory once it is warm") {
  Operands o({.m = 200, .n = 300, .k = 1100, .in = DType::bf16, .out = DType::bf16});
  kernels(Device::cpu).gemm(o.a, o.b, o.c, {});
  const std::int64_t before = MemoryPool::current()->system_allocations();
  const std::int64_t live = MemoryPool::current()->total().live;
  for (int i = 0; i < 3; ++i) kernels(Device::cpu).gemm(o.a, o.b, o.c, {});
  CHECK(MemoryPool::current()->system_allocations() == before);
  CHECK(MemoryPool::current()->total().live == live);
}

TEST_CASE("an unknown product is refused with the names of the known ones") {
  CHECK_THROWS_WITH(select_gemm("abacus"), doctest::Contains("trireme, eigen, openblas, onednn"));
  CHECK(selected_gemm() == gemm_names().front());
}

TEST_CASE("a library's product is refused where the library is not installed, and in a dtype it has not") {
  for (const std::string product : {"openblas", "onednn"}) {
    CAPTURE(product);
    if (gemm_installed(product)) {
      MESSAGE(product, " is installed");
      continue;
    }
    CHECK_THROWS_WITH(select_gemm(product), doctest::Contains("LD_LIBRARY_PATH"));
    CHECK(selected_gemm() == gemm_names().front());
  }
  if (!gemm_installed("onednn")) return;
  select_gemm("onednn");
  const Tensor x = random({3, 3}, 1, DType::f64);
  Tensor y = Tensor::empty({3, 3}, DType::f64);
  CHECK_THROWS_WITH(kernels(Device::cpu).gemm(x, x, y, {}), doctest::Contains("oneDNN has no product of f64"));
  select_gemm(gemm_names().front());
}

}  // namespace gemm_test
}  // namespace trireme
