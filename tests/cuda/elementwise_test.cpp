// Elementwise kernels against f64 formulas; broadcasts and views against index arithmetic.
#include <doctest/doctest.h>

#include <cmath>

#include "cuda/kernels/elementwise.h"
#include "tests/cuda/support.h"
#include "tests/support/binary_functions.h"
#include "tests/support/unary_functions.h"

using namespace trireme;
using namespace trireme::cuda;
using namespace cuda_test;

namespace elementwise_test {
namespace {

using testing::UnaryFunction, testing::unary_functions;
namespace exact = testing::exact;

constexpr double room = 1e-6;

/// Forward, and backward in place over dy.
template <class T>
double worst_unary(const UnaryFunction& f, std::size_t count, std::size_t offset) {
  Buffer<T> x(count, offset), y(count, offset), dy(count), gradient(count);
  x.fill_random(1, 4);
  if (f.low > 0)
    for (std::size_t i = 0; i < count; ++i) x.set(i, T(0.1F + std::abs(static_cast<float>(x.at(i)))));
  dy.fill_random(2);
  gradient.fill_random(2);
  const auto n = static_cast<std::int64_t>(count);
  unary(f.op, x.data(), y.data(), n);
  unary_backward(f.op, x.data(), gradient.data(), gradient.data(), n);
  double worst = 0;
  for (std::size_t i = 0; i < count; ++i) {
    worst = std::max({worst, error<T>(y.at(i), f.value(x.at(i)), room),
                      error<T>(gradient.at(i), f.derivative(x.at(i)) * dy.at(i), room)});
  }
  return worst;
}

/// The number of elements in memory from the first to the last of a view, both included.
std::size_t reach(const Shape& shape, const Shape& strides) {
  std::int64_t last = 0;
  for (int dim = 0; dim < shape.dims(); ++dim) last += (shape[dim] - 1) * strides[dim];
  return static_cast<std::size_t>(last + 1);
}

/// Computes every element by its index along each dim.
template <class T>
double worst_binary(Binary op, const Shape& shape, const Shape& a_strides, const Shape& b_strides, std::size_t offset) {
  Buffer<T> a(reach(shape, a_strides), offset), b(reach(shape, b_strides)), y(static_cast<std::size_t>(shape.count()));
  a.fill_random(3);
  b.fill_random(4);
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); i += 3) b.set(i, a.value(i));  // some are equal
  binary(op, a.data(), b.data(), y.data(), strided<2>(shape, {a_strides, b_strides}));
  double worst = 0;
  for (std::int64_t i = 0; i < shape.count(); ++i) {
    std::int64_t rest = i, at_a = 0, at_b = 0;
    for (int dim = shape.dims() - 1; dim >= 0; --dim) {
      at_a += rest % shape[dim] * a_strides[dim];
      at_b += rest % shape[dim] * b_strides[dim];
      rest /= shape[dim];
    }
    const double p = a.at(static_cast<std::size_t>(at_a)), q = b.at(static_cast<std::size_t>(at_b));
    worst = std::max(worst, error<T>(y.at(static_cast<std::size_t>(i)), testing::exact_binary(op, p, q), room));
  }
  return worst;
}

template <class X, class Y>
double worst_axpby(double p, double q, std::size_t count, std::size_t offset) {
  Buffer<X> x(count, offset);
  Buffer<Y> y(count), before(count);
  x.fill_random(5);
  if (q != 0) {  // else y stays NaN, which must not matter
    y.fill_random(6);
    before.fill_random(6);
  }
  axpby(static_cast<float>(p), x.data(), static_cast<float>(q), y.data(), static_cast<std::int64_t>(count));
  double worst = 0;
  for (std::size_t i = 0; i < count; ++i)
    worst = std::max(worst, error<Y>(y.at(i), p * x.at(i) + (q != 0 ? q * before.at(i) : 0), room));
  return worst;
}

/// The backward pass writes over x.
template <class T>
double worst_swiglu(std::size_t rows, std::size_t width, std::size_t offset) {
  Buffer<T> x(rows * 2 * width, offset), dx(rows * 2 * width, offset), y(rows * width), dy(rows * width);
  x.fill_random(7, 4);
  dx.fill_random(7, 4);
  dy.fill_random(8);
  const auto r = static_cast<std::int64_t>(rows), w = static_cast<std::int64_t>(width);
  swiglu(x.data(), y.data(), r, w);
  swiglu_backward(dx.data(), dy.data(), dx.data(), r, w);
  double worst = 0;
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t i = 0; i < width; ++i) {
      const std::size_t at = row * 2 * width + i, out = row * width + i;
      const double g = x.at(at), u = x.at(at + width), s = exact::sigmoid(g), d = dy.at(out);
      worst = std::max({worst, error<T>(y.at(out), g * s * u, room), error<T>(dx.at(at + width), d * g * s, room),
                        error<T>(dx.at(at), d * u * s * (1 + g * (1 - s)), room)});
    }
  return worst;
}

}  // namespace

TEST_CASE_TEMPLATE("cuda elementwise: unary functions and their derivatives equal f64", T, float, bf16, f16) {
  under_schedules([] {
    for (const UnaryFunction& f : unary_functions) {
      CAPTURE(f.name);
      CHECK(worst_unary<T>(f, 1, 0) < 1);
      CHECK(worst_unary<T>(f, 517, 0) < 1);
      CHECK(worst_unary<T>(f, 96, 1) < 1);
    }
  });
}

TEST_CASE_TEMPLATE("cuda elementwise: arithmetic over dense, broadcast and strided operands", T, float, bf16, f16) {
  under_schedules([] {
    for (const Binary op : {Binary::add, Binary::subtract, Binary::multiply, Binary::divide, Binary::equal,
                            Binary::not_equal, Binary::less, Binary::less_equal, Binary::maximum, Binary::minimum}) {
      CAPTURE(static_cast<int>(op));
      CHECK(worst_binary<T>(op, {3, 7, 16}, {112, 16, 1}, {112, 16, 1}, 0) < 1);  // dense
      CHECK(worst_binary<T>(op, {515}, {1}, {1}, 1) < 1);                         // ragged, unaligned
      CHECK(worst_binary<T>(op, {5, 24}, {24, 1}, {0, 1}, 0) < 1);                // + a row
      CHECK(worst_binary<T>(op, {5, 24}, {24, 1}, {1, 0}, 0) < 1);                // + a column
      CHECK(worst_binary<T>(op, {5, 13}, {13, 1}, {0, 1}, 0) < 1);                // a row not divisible into vectors
      CHECK(worst_binary<T>(op, {2, 3, 8}, {0, 0, 0}, {24, 1, 3}, 0) < 1);        // a scalar and a transpose
      CHECK(worst_binary<T>(op, {2, 1, 3, 2, 5}, {60, 30, 1, 3, 6}, {0, 9, 10, 5, 1}, 0) < 1);
      CHECK(worst_binary<T>(op, {1}, {7}, {0}, 0) < 1);
    }
  });
}

TEST_CASE_TEMPLATE("cuda elementwise: a x + b y between dtypes, b = 0 ignoring NaN", T, float, bf16, f16) {
  under_schedules([] {
    for (const double q : {0.0, 0.75}) {
      CHECK(worst_axpby<T, float>(-1.5, q, 1030, 0) < 1);
      CHECK(worst_axpby<float, T>(-1.5, q, 63, 1) < 1);
      CHECK(worst_axpby<T, bf16>(2.0, q, 9, 0) < 1);
      CHECK(worst_axpby<T, f16>(2.0, q, 1, 0) < 1);
    }
  });
}

TEST_CASE("cuda elementwise: arithmetic of f64 keeps its digits, and converts") {
  under_schedules([] {
    constexpr std::size_t count = 21;
    Buffer<double> a(count, 1), b(count), y(count), narrow(count);
    Buffer<float> wide(count);
    for (std::size_t i = 0; i < count; ++i) {
      a.set(i, 1 / (3.0 + static_cast<double>(i)));
      b.set(i, i % 4 == 0 ? a.value(i) : a.value(i) * (1 + 1e-12));  // all equal once rounded to f32
      wide.set(i, 0.5F);
    }
    const Strided<2> view = strided<2>({count}, {Shape{1}, Shape{1}});
    binary(Binary::equal, a.data(), b.data(), y.data(), view);
    for (std::size_t i = 0; i < count; ++i) CHECK(y.value(i) == (i % 4 == 0 ? 1.0 : 0.0));
    binary(Binary::divide, a.data(), b.data(), y.data(), view);
    for (std::size_t i = 0; i < count; ++i) CHECK(y.value(i) == a.value(i) / b.value(i));
    axpby(0.1, a.data(), 0.0, narrow.data(), count);
    axpby(0.1, wide.data(), 1.0, narrow.data(), count);
    axpby(2.0F, a.data(), 1.0F, wide.data(), count);
    for (std::size_t i = 0; i < count; ++i) {
      CHECK(narrow.value(i) == doctest::Approx(0.1 * a.value(i) + 0.05).epsilon(1e-15));
      CHECK(wide.value(i) == doctest::Approx(2 * a.value(i) + 0.5).epsilon(1e-7));
    }
  });
}

TEST_CASE_TEMPLATE("cuda elementwise: swiglu and its gradient over x equal f64", T, float, bf16, f16) {
  under_schedules([] {
    CHECK(worst_swiglu<T>(1, 1, 0) < 1);
    CHECK(worst_swiglu<T>(3, 40, 0) < 1);
    CHECK(worst_swiglu<T>(2, 37, 1) < 1);
    CHECK(worst_swiglu<T>(2, 2100, 0) < 1);
  });
}

TEST_CASE("cuda elementwise: more rows than a grid has" * doctest::skip(cuda_test::under_asan)) {
  CHECK(worst_swiglu<bf16>(2051, 1, 0) < 1);
}

}  // namespace elementwise_test
