// Unary functions and derivatives, broadcasting arithmetic, axpby and dropout.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/cpu/normal_distribution.h"
#include "core/random.h"
#include "support.h"
#include "tests/support/binary_functions.h"
#include "tests/support/unary_functions.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr Binary binary_ops[] = {Binary::add,     Binary::subtract,  Binary::multiply, Binary::divide,
                                 Binary::equal,   Binary::not_equal, Binary::less,     Binary::less_equal,
                                 Binary::maximum, Binary::minimum,   Binary::power};

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

TEST_CASE("unary: all 16-bit numbers at once, by tables, get the bits that few at a time get by arithmetic") {
  constexpr std::int64_t count = 1 << 16, few = 1 << 12;
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Tensor x = Tensor::empty({count}, dtype), dy = random({count}, 3, dtype, uniform(-2, 2));
    for (std::int64_t i = 0; i < count; ++i) static_cast<std::uint16_t*>(x.raw())[i] = static_cast<std::uint16_t>(i);
    for (const UnaryFunction& unary : unary_functions) {
      CAPTURE(std::string(unary.name));
      const auto empty = [&] { return Tensor::empty({count}, dtype); };
      Tensor y = empty(), dx = empty(), y_few = empty(), dx_few = empty();
      table.unary(unary.op, x, y);
      table.unary_backward(unary.op, x, dy, dx);
      for (std::int64_t i = 0; i < count; i += few) {
        const auto part = [&](const Tensor& of) { return view::slice(of, 0, i, few); };
        Tensor y_part = part(y_few), dx_part = part(dx_few);
        table.unary(unary.op, part(x), y_part);
        table.unary_backward(unary.op, part(x), part(dy), dx_part);
      }
      for (const auto& [all, parts] : {std::pair(y, y_few), std::pair(dx, dx_few)}) {
        const std::vector<double> a = values(all), b = values(parts);
        CHECK(std::equal(a.begin(), a.end(), b.begin(), [](double p, double q) {  // also the sign of 0, but not of NaN
          return std::isnan(p) ? std::isnan(q) : p == q && std::signbit(p) == std::signbit(q);
        }));
      }
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

TEST_CASE("unary f32: a few units in the last place over all exponents, subnormals, infinities and NaN") {
  // Of what exact arithmetic gives for the f32 number; but where the sigmoid is below 2^-128, it may be 0.
  struct Bound {
    Unary op;
    double ulps;                   // where the argument of the exponential is small
    double (*exponent)(double x);  // that argument: its rounding is an error of so many half ulps
    double lost;                   // absolute: results that are flushed to 0
    double (*value)(double x);
  };
  static constexpr auto of_gelu_tanh = [](double x) {
    return 2 * std::sqrt(2 / std::numbers::pi) * x * (1 + 0.044715 * x * x);
  };
  const auto none = [](double) { return 0.0; };
  const Bound bounds[] = {
      {Unary::exp, 1.5, none, 0, [](double x) { return std::exp(x); }},
      {Unary::tanh, 1.5, none, 0, [](double x) { return std::tanh(x); }},
      {Unary::sigmoid, 3, none, 3e-39, exact::sigmoid},
      {Unary::silu, 3, none, 1e-36, [](double x) { return x * exact::sigmoid(x); }},
      {Unary::gelu, 4, [](double x) { return x * x / 2; }, 0,
       [](double x) { return x * exact::normal_distribution(x); }},
      {Unary::gelu_tanh, 4, of_gelu_tanh, 1e-36, [](double x) { return x * exact::sigmoid(of_gelu_tanh(x)); }}};
  const auto ulp_of = [](double x) {
    int exponent = 0;
    std::frexp(x, &exponent);
    return std::ldexp(1.0, std::max(exponent - 24, -149));
  };
  std::vector<float> numbers;
  for (std::uint64_t bits = 0; bits < 1ULL << 32; bits += 4099)  // a prime: a million of all numbers
    numbers.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  for (const float magnitude : {0.0F, 1e-45F, 1.17549421e-38F, std::numeric_limits<float>::max(),
                                std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    numbers.insert(numbers.end(), {magnitude, -magnitude});
  const auto n = static_cast<std::int64_t>(numbers.size());
  Tensor x = Tensor::empty({n}, DType::f32), y = Tensor::empty({n}, DType::f32);
  std::copy(numbers.begin(), numbers.end(), x.data<float>());
  for (const Bound& bound : bounds) {
    CAPTURE(static_cast<int>(bound.op));
    table.unary(bound.op, x, y);
    std::int64_t wrong = 0;
    float first = 0;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const auto in = static_cast<double>(numbers[i]), got = static_cast<double>(y.data<float>()[i]),
                 exact = bound.value(in);
      const double exponent = std::min(std::fabs(bound.exponent(in)), 110.0);  // beyond, the result is 0 or x
      const double error = bound.ulps * ulp_of(exact) * (1 + exponent) + bound.lost;
      const bool overflows = std::fabs(exact) > static_cast<double>(std::numeric_limits<float>::max());
      const bool right = std::isnan(exact) ? std::isnan(got)
                         : overflows       ? got == static_cast<double>(static_cast<float>(exact))
                                           : std::fabs(got - exact) <= error;
      if (!right && wrong++ == 0) first = numbers[i];
    }
    CAPTURE(first);
    CHECK(wrong == 0);
  }
}

TEST_CASE("unary: an element's result does not depend on its place, nor on how many there are") {
  constexpr std::int64_t count = 67;  // more than four vectors
  for (const UnaryFunction& unary : unary_functions) {
    for (const DType dtype : floating_dtypes) {
      CAPTURE(std::string(unary.name));
      const Tensor x = random({count}, 4, dtype, uniform(unary.low, unary.high)),
                   dy = random({count}, 5, dtype, uniform(-2, 2));
      Tensor y = Tensor::empty({count}, dtype), dx = Tensor::empty({count}, dtype);
      table.unary(unary.op, x, y);
      table.unary_backward(unary.op, x, dy, dx);
      for (std::int64_t begin = 0; begin < count; begin += 5) {
        for (const std::int64_t n : {1, 7, 16, 31}) {
          if (begin + n > count) continue;
          const auto part = [&](const Tensor& of) { return view::slice(of, 0, begin, n); };
          Tensor y_part = Tensor::empty({n}, dtype), dx_part = Tensor::empty({n}, dtype);
          table.unary(unary.op, part(x), y_part);
          table.unary_backward(unary.op, part(x), part(dy), dx_part);
          REQUIRE(values(y_part) == values(part(y)));
          REQUIRE(values(dx_part) == values(part(dx)));
        }
      }
    }
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
          for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = exact_binary(op, expected[i], right[i]);
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

TEST_CASE("binary: comparisons, maximum and minimum of NaN and infinities") {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const auto one = [](Binary op, double a, double b, DType dtype) {
    Tensor y = Tensor::empty({}, dtype);
    table.binary(op, Tensor::full({}, a, dtype), Tensor::full({}, b, dtype), y);
    return y.item();
  };
  for (const DType dtype : floating_dtypes) {
    for (const double x : {-inf, -1.0, inf, nan}) {
      CHECK(one(Binary::less, nan, x, dtype) == 0);
      CHECK(one(Binary::less_equal, x, nan, dtype) == 0);
      CHECK(one(Binary::not_equal, x, nan, dtype) == 1);
      CHECK(std::isnan(one(Binary::maximum, nan, x, dtype)));
      CHECK(std::isnan(one(Binary::maximum, x, nan, dtype)));
      CHECK(std::isnan(one(Binary::minimum, nan, x, dtype)));
      CHECK(std::isnan(one(Binary::minimum, x, nan, dtype)));
    }
    CHECK(one(Binary::less, inf, inf, dtype) == 0);
    CHECK(one(Binary::less_equal, inf, inf, dtype) == 1);
    CHECK(one(Binary::less, -inf, inf, dtype) == 1);
    CHECK(one(Binary::not_equal, inf, inf, dtype) == 0);
    CHECK(one(Binary::maximum, -inf, inf, dtype) == inf);
    CHECK(one(Binary::minimum, -inf, 0, dtype) == -inf);
  }
}

TEST_CASE("where: every triple of layouts; what is not chosen may be NaN") {
  const Shape shape{4, 5, 18};
  for (const DType dtype : floating_dtypes) {
    const auto layouts = [&](std::uint64_t stream) {
      return std::vector<Tensor>{
          random(shape, stream, dtype),
          view::expand(random({18}, stream + 1, dtype), shape),
          view::expand(random({5, 1}, stream + 2, dtype), shape),
          view::expand(random({}, stream + 3, dtype), shape),
          view::transpose(random({18, 5, 4}, stream + 4, dtype), 0, 2),
      };
    };
    for (const Tensor& number : layouts(1)) {
      Tensor mask = Tensor::empty(shape, dtype);
      table.binary(Binary::less, number, view::expand(Tensor::zeros({}, dtype), shape), mask);
      for (const Tensor& chosen : {mask, view::transpose(contiguous(view::transpose(mask, 0, 2)), 0, 2)}) {
        for (const Tensor& a : layouts(11)) {
          for (const Tensor& b : layouts(21)) {
            Tensor y = Tensor::empty(shape, dtype);
            table.where(chosen, a, b, y);
            std::vector<double> expected = values(b);
            const std::vector<double> left = values(a), holds = values(chosen);
            for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = holds[i] != 0 ? left[i] : expected[i];
            check_close(y, expected, 0, 0);
          }
        }
      }
    }
    Tensor y = Tensor::empty({2}, dtype);
    table.where(Tensor::from({1, 0}, dtype), Tensor::from({3.0, NAN}, dtype), Tensor::from({NAN, -INFINITY}, dtype), y);
    CHECK(values(y) == std::vector<double>{3, -INFINITY});
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

TEST_CASE("rounding at random: one of the two neighbours, the right one on average, and the same for every shard") {
  const Shape global = {6, 4, 11};
  const Tensor x = random(global, 3, DType::f32);
  Tensor whole = Tensor::empty(global, DType::bf16);
  table.round_at_random(x, 42, 9, {global, {0, 0, 0}}, whole);
  const std::vector<double> exact = values(x), rounded = values(whole);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    CHECK(std::abs(rounded[i] - exact[i]) < std::ldexp(1, std::ilogb(exact[i]) - 7));  // less than a step
    CHECK(std::abs(rounded[i]) >= std::ldexp(1, std::ilogb(exact[i])));
  }
  const Shape start = {1, 0, 3};
  Tensor part = x;
  const Shape extent = {4, 4, 1};
  for (int dim = 0; dim < 3; ++dim) part = view::slice(part, dim, start[dim], extent[dim]);
  Tensor of_part = Tensor::empty(extent, DType::bf16), expected = whole;
  table.round_at_random(contiguous(part), 42, 9, {global, start}, of_part);
  for (int dim = 0; dim < 3; ++dim) expected = view::slice(expected, dim, start[dim], extent[dim]);
  CHECK(values(of_part) == values(expected));

  const std::int64_t n = 100000;
  for (const float value : {1.0F + 0x1p-9F, -3.3F, 1e-30F}) {
    Tensor many = Tensor::empty({n}, DType::bf16);
    table.round_at_random(Tensor::full({n}, value), 1, 2, {{n}, {0}}, many);
    double sum = 0;
    for (const double v : values(many)) sum += v;
    const double step = std::ldexp(1, std::ilogb(value) - 7);
    CHECK(std::abs(sum / n - static_cast<double>(value)) < 5 * 0.5 * step / std::sqrt(n));  // five standard deviations
  }
  for (const float stays : {0.0F, 1.0F, -1.5F, INFINITY, -INFINITY}) {
    Tensor same = Tensor::empty({5}, DType::bf16);
    table.round_at_random(Tensor::full({5}, stays), 1, 2, {{5}, {0}}, same);
    CHECK(values(same) == std::vector<double>(5, stays));
  }
  Tensor nan = Tensor::empty({5}, DType::bf16);
  table.round_at_random(Tensor::full({5}, NAN), 1, 2, {{5}, {0}}, nan);
  for (const double v : values(nan)) CHECK(std::isnan(v));
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
