// Reductions and softmax against f64.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "cuda/kernels/reduce.h"
#include "cuda/kernels/softmax.h"
#include "tests/cuda/support.h"

using namespace trireme;
using namespace trireme::cuda;
using namespace cuda_test;

namespace reduce_test {
namespace {

constexpr double room = 2e-6;

/// The largest error against f64, where each element of x goes to the output at its index.
template <class T, class Y = T>
double worst_reduce(Reduction op, const Shape& shape, const Shape& strides, const Shape& out, std::size_t offset = 1) {
  CAPTURE(fmt::format("{} by {} to {}", shape, strides, out));
  std::int64_t last = 0;
  for (int dim = 0; dim < shape.dims(); ++dim) last += (shape[dim] - 1) * strides[dim];
  Buffer<T> x(static_cast<std::size_t>(last + 1), offset);
  Buffer<Y> y(static_cast<std::size_t>(out.count()));
  x.fill_random(1);
  const ReducePlan plan = reduce_plan(shape, strides, out);
  Buffer<accumulate_t<T>> partials(static_cast<std::size_t>(plan.workspace()));
  reduce(op, x.data(), y.data(), plan, partials.data());

  std::vector<double> expected(y.size(), op == Reduction::sum ? 0 : -INFINITY);
  const Shape out_strides = row_major_strides(out);
  for (std::int64_t i = 0; i < shape.count(); ++i) {
    std::int64_t rest = i, from = 0, to = 0;
    for (int dim = shape.dims() - 1; dim >= 0; --dim) {
      from += rest % shape[dim] * strides[dim];
      if (out[dim] > 1) to += rest % shape[dim] * out_strides[dim];
      rest /= shape[dim];
    }
    double& result = expected[static_cast<std::size_t>(to)];
    const double value = x.at(static_cast<std::size_t>(from));
    result = op == Reduction::sum ? result + value : std::max(result, value);
  }
  double worst = 0;
  // In sums of thousands of values near 1 the error of f32 is relative to the terms, not to the result.
  const double depth = static_cast<double>(shape.count()) / static_cast<double>(out.count());
  for (std::size_t i = 0; i < y.size(); ++i)
    worst = std::max(worst, error<Y>(y.at(i), expected[i], room) / std::max(1.0, std::sqrt(depth) / 8));
  return worst;
}

template <class T>
double worst_softmax(std::size_t rows, std::size_t width, std::size_t offset, float size) {
  Buffer<T> x(rows * width, offset), y(rows * width, offset), dy(rows * width), dx(rows * width);
  x.fill_random(2, size);
  y.fill_random(2, size);
  dy.fill_random(3);
  dx.fill_random(3);
  if (width > 3) x.set(1, T(-INFINITY)), y.set(1, T(-INFINITY));
  const auto r = static_cast<std::int64_t>(rows), w = static_cast<std::int64_t>(width);
  softmax(y.data(), y.data(), r, w);
  softmax_backward(y.data(), dx.data(), dx.data(), r, w);
  double worst = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    double top = -INFINITY, sum = 0, mean = 0;
    for (std::size_t c = 0; c < width; ++c) top = std::max(top, x.at(row * width + c));
    for (std::size_t c = 0; c < width; ++c) sum += std::exp(x.at(row * width + c) - top);
    for (std::size_t c = 0; c < width; ++c) mean += y.at(row * width + c) * dy.at(row * width + c);
    for (std::size_t c = 0; c < width; ++c) {
      const std::size_t at = row * width + c;
      worst = std::max({worst, error<T>(y.at(at), std::exp(x.at(at) - top) / sum, room),
                        error<T>(dx.at(at), y.at(at) * (dy.at(at) - mean), room)});
    }
  }
  return worst;
}

}  // namespace

TEST_CASE_TEMPLATE("cuda reduce: any dims of any view equal f64", T, double, float, bf16, f16) {
  under_schedules([] {
    for (const Reduction op : {Reduction::sum, Reduction::max}) {
      CAPTURE(static_cast<int>(op));
      CHECK(worst_reduce<T>(op, {1}, {1}, {1}) < 1);
      CHECK(worst_reduce<T>(op, {7, 33}, {33, 1}, {7, 1}) < 1);         // rows
      CHECK(worst_reduce<T>(op, {33, 270}, {270, 1}, {1, 270}) < 1);    // columns
      CHECK(worst_reduce<T>(op, {1100, 5}, {5, 1}, {1, 5}) < 1);        // in parts, by columns
      CHECK(worst_reduce<T>(op, {259, 72}, {80, 1}, {1, 72}, 0) < 1);   // a matrix in parts, aligned
      CHECK(worst_reduce<T>(op, {5, 261}, {264, 1}, {1, 261}, 0) < 1);  // and in two blocks of columns
      CHECK(worst_reduce<T>(op, {3, 4, 5, 6}, {120, 30, 6, 1}, {3, 1, 5, 1}) < 1);
      CHECK(worst_reduce<T>(op, {6, 5, 4}, {1, 24, 6}, {1, 5, 1}) < 1);  // a transpose
      CHECK(worst_reduce<T>(op, {4, 3}, {3, 1}, {4, 3}) < 1);            // nothing to reduce
    }
  });
  CHECK(worst_reduce<T>(Reduction::sum, {9001}, {1}, {1}) < 1);  // in parts, by rows
}

TEST_CASE_TEMPLATE("cuda reduce: 16-bit elements into an f32 result, which is not rounded", T, bf16, f16) {
  under_schedules([] {
    for (const Reduction op : {Reduction::sum, Reduction::max}) {
      CHECK(worst_reduce<T, float>(op, {7, 33}, {33, 1}, {7, 1}) < 1);       // rows
      CHECK(worst_reduce<T, float>(op, {33, 270}, {270, 1}, {1, 270}) < 1);  // columns
      CHECK(worst_reduce<T, float>(op, {1100, 5}, {5, 1}, {1, 5}) < 1);      // in parts
      CHECK(worst_reduce<T, float>(op, {259, 72}, {80, 1}, {1, 72}, 0) < 1);
    }
  });
  Buffer<T> x(1100 * 5);
  for (std::size_t i = 0; i < x.size(); ++i) x.set(i, T(1000.0F));
  Buffer<float> y(5);
  const ReducePlan plan = reduce_plan({1100, 5}, {5, 1}, {1, 5});
  Buffer<float> partials(static_cast<std::size_t>(plan.workspace()));
  reduce(Reduction::sum, x.data(), y.data(), plan, partials.data());
  for (std::size_t i = 0; i < y.size(); ++i) CHECK(y.at(i) == 1.1e6);  // beyond the range of f16
}

TEST_CASE("cuda reduce: NaN stays, and nothing gives 0 or -infinity") {
  Buffer<float> x(600), y(1), partials(1);
  x.fill_random(5);
  x.set(417, NAN);
  for (const Reduction op : {Reduction::sum, Reduction::max}) {
    reduce(op, x.data(), y.data(), reduce_plan({600}, {1}, {1}), partials.data());
    CHECK(std::isnan(y.at(0)));
    reduce(op, x.data(), y.data(), reduce_plan({1, 0}, {0, 1}, {1, 1}), partials.data());
    CHECK(y.at(0) == (op == Reduction::sum ? 0 : -INFINITY));
  }
}

TEST_CASE("cuda sum of squares: many tensors of any dtypes in one sum, in f64 over tiles") {
  under_schedules([] {
    Buffer<double> a(kSquaresTile + 3, 1), none(0);
    Buffer<float> b(70001);
    Buffer<bf16> c(1, 1), d(5003, 1);
    Buffer<f16> e(3 * kSquaresTile);
    double expected = 0;
    std::vector<SquaresOf> list = {{none.data(), 0, DType::f64}};
    const auto add = [&](auto& x, DType dtype) {
      x.fill_random(6 + list.size());
      for (std::size_t i = 0; i < x.size(); ++i) expected += x.at(i) * x.at(i);
      list.push_back({x.data(), static_cast<std::int64_t>(x.size()), dtype});
    };
    add(a, DType::f64);
    add(b, DType::f32);
    add(c, DType::bf16);
    add(d, DType::bf16);
    add(e, DType::f16);
    REQUIRE(squares_partials(list) == 2 + 5 + 1 + 1 + 3);
    Buffer<double> partials(12), result(1);
    sum_squares(list, partials.data(), result.data());
    CHECK(result.value(0) == doctest::Approx(expected).epsilon(1e-12));
    sum_squares({}, partials.data(), result.data());
    CHECK(result.value(0) == 0);
  });
}

TEST_CASE_TEMPLATE("cuda softmax: rows of a warp and of a block, in place, equal f64", T, float, bf16, f16) {
  under_schedules([] {
    CHECK(worst_softmax<T>(1, 1, 0, 1) < 1);
    CHECK(worst_softmax<T>(13, 8, 0, 4) < 1);
    CHECK(worst_softmax<T>(3, 131, 1, 30) < 1);
    CHECK(worst_softmax<T>(3, 517, 1, 4) < 1);
    CHECK(worst_softmax<T>(2, 1024, 0, 1) < 1);
    CHECK(worst_softmax<T>(2, 4107, 0, 4) < 1);
  });
}

}  // namespace reduce_test
