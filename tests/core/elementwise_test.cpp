// Unary functions and derivatives, broadcasting arithmetic, axpby and dropout.
#include <cmath>
#include <limits>

#include "core/cpu/normal_distribution.h"
#include "core/random.h"
#include "support.h"
#include "tests/support/unary_functions.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

double apply(Binary op, double a, double b) {
  switch (op) {
    case Binary::add:
      return a + b;
    case Binary::subtract:
      return a - b;
    case Binary::multiply:
      return a * b;
    case Binary::divide:
      return a / b;
    case Binary::equal:
      return a == b ? 1 : 0;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

constexpr Binary binary_ops[] = {Binary::add, Binary::subtract, Binary::multiply, Binary::divide, Binary::equal};

}  // namespace

TEST_CASE("unary: values, at lengths around the vector widths") {
  for (const UnaryFunction& unary : unary_functions) {
    for (const DType dtype : floating_dtypes) {
      for (const std::int64_t n : {0, 1, 15, 16, 33, 1000}) {
        CAPTURE(unary.name);
        const Tensor x = random({n}, 1, dtype, uniform(unary.low, unary.high));
        Tensor y = Tensor::empty({n}, dtype);
        table.unary(unary.op, x, y);
        std::vector<double> expected = values(x);
        for (double& v : expected) v = unary.value(v);
        check_close(y, expected, rounding(dtype), dtype == DType::f64 ? 1e-14 : 5e-7);
        Tensor in_place = clone(x);
        table.unary(unary.op, in_place, in_place);
        check_close(in_place, values(y), 0, 0);
      }
    }
  }
}

TEST_CASE("unary_backward: the derivative times dy, also in place of dy") {
  for (const UnaryFunction& unary : unary_functions) {
    for (const DType dtype : floating_dtypes) {
      CAPTURE(unary.name);
      const Tensor x = random({7, 31}, 2, dtype, uniform(unary.low, unary.high)),
                   dy = random({7, 31}, 3, dtype, uniform(-2, 2));
      Tensor dx = Tensor::empty({7, 31}, dtype);
      table.unary_backward(unary.op, x, dy, dx);
      std::vector<double> expected = values(x);
      const std::vector<double> upstream = values(dy);
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = unary.derivative(expected[i]) * upstream[i];
      const double atol = unary.op == Unary::gelu_tanh ? 1e-8 : 1e-14;
      check_close(dx, expected, rounding(dtype), dtype == DType::f64 ? atol : 1e-6);
      Tensor in_place = clone(dy);
      table.unary_backward(unary.op, x, in_place, in_place);
      check_close(in_place, values(dx), 0, 0);
    }
  }
}

TEST_CASE("unary: extremes stay what they are in exact arithmetic") {
  const double infinity = std::numeric_limits<double>::infinity();
  Tensor x = Tensor::empty({5}, DType::f32), y = Tensor::empty({5}, DType::f32);
  assign(x, {-1e4, 1e4, -infinity, infinity, std::nan("")});
  const auto result = [&](Unary op) {
    table.unary(op, x, y);
    return values(y);
  };
  const std::vector<double> exp = result(Unary::exp), sigmoid = result(Unary::sigmoid), tanh = result(Unary::tanh);
  CHECK(std::vector(exp.begin(), exp.end() - 1) == std::vector<double>{0, infinity, 0, infinity});
  CHECK(std::vector(sigmoid.begin(), sigmoid.end() - 1) == std::vector<double>{0, 1, 0, 1});
  CHECK(std::vector(tanh.begin(), tanh.end() - 1) == std::vector<double>{-1, 1, -1, 1});
  for (const Unary op : {Unary::gelu, Unary::gelu_tanh, Unary::silu, Unary::relu}) {
    const std::vector<double> large = result(op);
    CHECK(large[0] == 0);
    CHECK(large[1] == 1e4);
    CHECK(large[3] == infinity);
    CHECK(std::isnan(large[4]));
  }
}

TEST_CASE("normal_point: cdf and pdf within 2e-7 of f64, relative in the tail up to the rounding of x^2") {
  for (int i = -140000; i <= 140000; ++i) {
    const float x = static_cast<float>(i) * 1e-4F;
    const auto found = cpu::normal_point(x);
    const auto expected = cpu::normal_point(static_cast<double>(x));
    const double bound = 2e-7 * (1 + 0.5 * static_cast<double>(x) * static_cast<double>(x));
    REQUIRE(std::abs(expected.cdf - exact::normal_distribution(static_cast<double>(x))) <= 1e-15);
    REQUIRE(std::abs(static_cast<double>(found.cdf) - expected.cdf) <= bound * expected.cdf + 1e-38);
    REQUIRE(std::abs(static_cast<double>(found.pdf) - expected.pdf) <= bound * expected.pdf + 1e-38);
  }
  for (const float x : {15.0F, 1e30F, std::numeric_limits<float>::infinity()}) {
    CHECK(cpu::normal_point(x).cdf == 1.0F);
    CHECK(cpu::normal_point(-x).cdf == 0.0F);
    CHECK(cpu::normal_point(x).pdf == 0.0F);
  }
  CHECK(std::isnan(cpu::normal_point(std::numeric_limits<float>::quiet_NaN()).cdf));
}

TEST_CASE("binary: every pair of layouts, every operation and dtype") {
  const Shape shape{4, 5, 18};
  for (const DType dtype : floating_dtypes) {
    const std::vector<Tensor> operands = {
        random(shape, 1, dtype, uniform(0.5, 2)),
        view::expand(random({18}, 2, dtype, uniform(0.5, 2)), shape),
        view::expand(random({5, 1}, 3, dtype, uniform(0.5, 2)), shape),
        view::expand(random({4, 1, 18}, 4, dtype, uniform(0.5, 2)), shape),
        view::expand(random({}, 5, dtype, uniform(0.5, 2)), shape),
        view::transpose(random({18, 5, 4}, 6, dtype, uniform(0.5, 2)), 0, 2),
        view::slice(random({4, 5, 30}, 7, dtype, uniform(0.5, 2)), 2, 7, 18),
    };
    for (const Tensor& a : operands) {
      for (const Tensor& b : operands) {
        for (const Binary op : binary_ops) {
          Tensor y = Tensor::empty(shape, dtype);
          table.binary(op, a, b, y);
          std::vector<double> expected = values(a);
          const std::vector<double> right = values(b);
          for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = apply(op, expected[i], right[i]);
          check_close(y, expected, rounding(dtype), 0);
        }
      }
    }
    Tensor in_place = clone(operands[0]);
    table.binary(Binary::subtract, operands[1], in_place, in_place);
    std::vector<double> expected = values(operands[1]);
    const std::vector<double> right = values(operands[0]);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] -= right[i];
    check_close(in_place, expected, rounding(dtype), 0);
  }
}

TEST_CASE("multiply_by: rounded once; a factor of 1 leaves the bits") {
  for (const DType dtype : floating_dtypes) {
    Tensor x = random({3, 41}, 1, dtype, uniform(-2, 2));
    const std::vector<double> before = values(x);
    std::vector<double> expected = before;
    table.multiply_by(Tensor::full({}, 1, accumulate_dtype(dtype)), x);
    CHECK(values(x) == before);
    for (double& value : expected) value *= 0.375;
    table.multiply_by(Tensor::full({}, 0.375, accumulate_dtype(dtype)), x);
    check_close(x, expected, rounding(dtype), 0);
  }
}

TEST_CASE("axpby: mixed dtypes; b = 0 ignores what y holds") {
  for (const DType x_dtype : floating_dtypes) {
    for (const DType y_dtype : floating_dtypes) {
      const Tensor x = random({3, 41}, 1, x_dtype, uniform(-2, 2));
      Tensor y = random({3, 41}, 2, y_dtype, uniform(-2, 2));
      std::vector<double> expected = values(y);
      const std::vector<double> left = values(x);
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = 0.75 * left[i] - 1.5 * expected[i];
      table.axpby(0.75, x, -1.5, y);
      const double error =
          x_dtype == DType::f64 && y_dtype != DType::f64 ? std::max(rounding(y_dtype), 1e-6) : rounding(y_dtype);
      check_close(y, expected, error, error);
      kernels(Device::cpu).fill(y, std::nan(""));
      table.axpby(2, x, 0, y);
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = 2 * left[i];
      check_close(y, expected, error, 0);
    }
  }
}

TEST_CASE("dropout: the mask of every shard is the mask of the whole") {
  const Shape global{6, 10, 22};
  const double p = 0.3;
  for (const DType dtype : floating_dtypes) {
    const Tensor x = random(global, 1, dtype, uniform(-2, 2));
    Tensor whole = Tensor::empty(global, dtype);
    table.dropout(x, p, 42, 9, {global, {0, 0, 0}}, whole);
    std::vector<double> expected = values(x);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const bool keeps = static_cast<double>(random_uniform(42, 9, i)) >= p;
      expected[i] = keeps ? expected[i] / (1 - p) : 0;
    }
    check_close(whole, expected, 2 * rounding(dtype), 0);
    const struct {
      Shape start, extent;
    } shards[] = {{{0, 0, 11}, {6, 10, 11}}, {{3, 0, 0}, {3, 10, 22}}, {{1, 7, 5}, {2, 3, 9}}, {{0, 2, 21}, {6, 8, 1}}};
    for (const auto& shard : shards) {
      Tensor part = x, cut = whole;
      for (int dim = 0; dim < 3; ++dim) {
        part = view::slice(part, dim, shard.start[dim], shard.extent[dim]);
        cut = view::slice(cut, dim, shard.start[dim], shard.extent[dim]);
      }
      Tensor y = clone(part);
      table.dropout(y, p, 42, 9, {global, shard.start}, y);
      check_close(y, values(cut), 0, 0);
    }
  }
}

TEST_CASE("dropout: keeps 1 - p of many elements; p = 0 keeps all") {
  const Tensor x = Tensor::full({100000}, 1);
  Tensor y = Tensor::empty({100000});
  table.dropout(x, 0.1, 1, 2, {{100000}, {0}}, y);
  double kept = 0;
  for (const double v : values(y)) kept += v != 0;
  CHECK(kept / 100000 == doctest::Approx(0.9).epsilon(0.005));
  table.dropout(x, 0, 1, 2, {{100000}, {0}}, y);
  check_close(y, values(x), 0, 0);
}

TEST_CASE("elementwise: the same for any number of threads") {
  const Tensor x = random({333, 301}, 1, DType::f32, uniform(-2, 2)),
               row = view::expand(random({301}, 2, DType::f32, uniform(-2, 2)), {333, 301});
  for (const UnaryFunction& unary : unary_functions) {
    CAPTURE(unary.name);
    check_same_for_any_threads([&] {
      Tensor y = Tensor::empty(x.shape());
      table.unary(unary.op, x, y);
      return y;
    });
    check_same_for_any_threads([&] {
      Tensor dx = Tensor::empty(x.shape());
      table.unary_backward(unary.op, x, x, dx);
      return dx;
    });
  }
  check_same_for_any_threads([&] {
    Tensor y = Tensor::empty(x.shape());
    table.binary(Binary::multiply, x, row, y);
    table.axpby(0.3, x, 0.7, y);
    table.dropout(y, 0.5, 1, 2, {x.shape(), {0, 0}}, y);
    return y;
  });
}
