// Reductions over every subset of dims of several layouts, and sums of squares.
#include <cmath>
#include <limits>

#include "support.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

// The shape of x with the dims reduced whose bit is set in `mask`.
Shape reduced_shape(const Tensor& x, unsigned mask) {
  Shape shape = x.shape();
  for (int dim = 0; dim < x.dims(); ++dim) {
    if (mask >> dim & 1U) shape[dim] = 1;
  }
  return shape;
}

/// Sums in long double: a plain sum in f64 has larger rounding errors than the kernel.
std::vector<double> reference(Reduction op, const Tensor& x, const Shape& shape) {
  const long double lowest = -std::numeric_limits<long double>::infinity();
  std::vector<long double> result(static_cast<std::size_t>(shape.count()), op == Reduction::sum ? 0 : lowest);
  const std::vector<double> elements = values(x);
  for (std::int64_t i = 0; i < x.count(); ++i) {
    std::int64_t rest = i, to = 0, step = 1;
    for (int dim = x.dims() - 1; dim >= 0; --dim) {
      if (shape[dim] != 1) to += rest % x.size(dim) * step;
      step *= shape[dim];
      rest /= x.size(dim);
    }
    long double& slot = result[static_cast<std::size_t>(to)];
    const long double v = elements[static_cast<std::size_t>(i)];
    slot = op == Reduction::sum ? slot + v : std::max(slot, v);
  }
  return {result.begin(), result.end()};
}

void check_reduce(Reduction op, const Tensor& x, unsigned mask) {
  const Shape shape = reduced_shape(x, mask);
  CAPTURE(to_string(x.shape()));
  CAPTURE(to_string(x.strides()));
  CAPTURE(to_string(shape));
  Tensor y = Tensor::empty(shape, x.dtype());
  table.reduce(op, x, y);
  const double depth = static_cast<double>(x.count()) / static_cast<double>(std::max<std::int64_t>(shape.count(), 1));
  const double acc_error = x.dtype() == DType::f64 ? 1e-15 : 1e-7;
  const double atol = op == Reduction::max ? 0 : acc_error * 2 * std::sqrt(depth) * 10;
  check_close(y, reference(op, x, shape), op == Reduction::max ? 0 : rounding(x.dtype()), atol);
}

}  // namespace

TEST_CASE("reduce: every subset of dims, ragged shapes, strided and broadcast views") {
  for (const DType dtype : floating_dtypes) {
    const std::vector<Tensor> inputs = {
        random({5, 7, 19}, 1, dtype, uniform(-2, 2)),
        random({3, 130, 33}, 2, dtype, uniform(-2, 2)),
        view::transpose(random({19, 6, 5}, 3, dtype, uniform(-2, 2)), 0, 2),
        view::transpose(random({6, 5, 70}, 4, dtype, uniform(-2, 2)), 0, 1),
        view::slice(random({5, 6, 40}, 5, dtype, uniform(-2, 2)), 2, 3, 21),
        view::expand(random({6, 1}, 6, dtype, uniform(-2, 2)), {4, 6, 9}),
        view::expand(random({9}, 7, dtype, uniform(-2, 2)), {4, 6, 9}),
        random({1, 1, 1}, 8, dtype, uniform(-2, 2)),
    };
    for (const Tensor& x : inputs) {
      for (unsigned mask = 0; mask < 8; ++mask) {
        check_reduce(Reduction::sum, x, mask);
        check_reduce(Reduction::max, x, mask);
      }
    }
  }
}

TEST_CASE("reduce: shapes large enough to be cut in parts") {
  for (const DType dtype : {DType::f64, DType::f32}) {
    for (const Shape& shape : {Shape{768, 128}, Shape{12, 64, 130}, Shape{3, 40001}, Shape{200000}}) {
      const Tensor x = random(shape, 1, dtype, uniform(-2, 2));
      for (unsigned mask = 0; mask < 1U << shape.dims(); ++mask) {
        check_reduce(Reduction::sum, x, mask);
        check_reduce(Reduction::max, x, mask);
      }
    }
  }
}

TEST_CASE("reduce: nothing to reduce is the neutral element; NaN is not lost in a maximum") {
  Tensor sum = Tensor::full({1, 3}, 5), max = Tensor::full({1, 3}, 5);
  table.reduce(Reduction::sum, Tensor::empty({0, 3}), sum);
  table.reduce(Reduction::max, Tensor::empty({0, 3}), max);
  check_close(sum, {0, 0, 0}, 0, 0);
  check_close(max, std::vector<double>(3, -std::numeric_limits<double>::infinity()), 0, 0);
  for (const std::int64_t at : {0, 37, 99}) {
    Tensor x = random({100}, 1, DType::f32, uniform(-2, 2)), y = Tensor::empty({1});
    x.data<float>()[at] = std::numeric_limits<float>::quiet_NaN();
    table.reduce(Reduction::max, x, y);
    CHECK(std::isnan(y.item()));
  }
}

TEST_CASE("reduce: 16-bit sums are kept in f32") {
  const Tensor ones = Tensor::full({4096, 3}, 1, DType::bf16);  // bf16 alone would stop growing at 256
  Tensor y = Tensor::empty({1, 3}, DType::bf16);
  table.reduce(Reduction::sum, ones, y);
  check_close(y, {4096, 4096, 4096}, 0, 0);
}

TEST_CASE("reduce: a 16-bit sum may leave in f32, unrounded and beyond the range of f16") {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const Shape& shape : {Shape{4096, 3}, Shape{3, 4096}, Shape{4100, 70}, Shape{40, 300}}) {
      const Tensor x = Tensor::full(shape, 1001, dtype);  // bf16: 1000
      const double each = x.dtype() == DType::f16 ? 1001 : 1000;
      for (const int dim : {0, 1}) {
        Tensor y = Tensor::empty(shape.with(dim, 1));
        table.reduce(Reduction::sum, x, y);
        const double sum = each * static_cast<double>(shape[dim]);
        check_close(y, std::vector<double>(static_cast<std::size_t>(y.count()), sum), 0, 0);
      }
    }
  }
}

TEST_CASE("reduce, cumsum: the error of long sums of equal numbers does not grow with their length") {
  const std::int64_t length = std::int64_t{1} << 20;
  const Tensor x = Tensor::full({length, 16}, 0.1);
  Tensor sums = Tensor::empty({1, 16});
  table.reduce(Reduction::sum, x, sums);
  const double expected = static_cast<double>(0.1F) * static_cast<double>(length);
  for (std::int64_t i = 0; i < 16; ++i)
    CHECK(std::abs(static_cast<double>(sums.data<float>()[i]) - expected) < 1e-4 * expected);
  for (const std::int64_t width : {1, 16}) {
    Tensor y = Tensor::empty({1, length, width});
    table.cumsum(Tensor::full({1, length, width}, 0.1), false, y);
    CHECK(std::abs(static_cast<double>(y.span<float>().back()) - expected) < 1e-6 * expected);
  }
}

TEST_CASE("sum_squares: in f64 for every dtype") {
  for (const DType dtype : floating_dtypes) {
    for (const std::int64_t n : {0, 1, 17, 1000, 150001}) {
      const Tensor x = random({n}, 3, dtype, uniform(-2, 2));
      double expected = 0;
      for (const double v : values(x)) expected += v * v;
      CHECK(table.sum_squares({&x, 1}).value() == doctest::Approx(expected).epsilon(1e-12));
    }
  }
}

TEST_CASE("sum_squares: a list gives the exact sum of its tensors' sums, whatever dtypes and sizes, for any threads") {
  std::vector<Tensor> xs;
  for (const std::int64_t n : {3, 0, 150001, 1, 65536, 70000, 0}) {
    for (const DType dtype : floating_dtypes)
      xs.push_back(random({n}, static_cast<std::uint64_t>(7 + xs.size()), dtype, uniform(-2, 2)));
  }
  ExactSum alone;
  for (const Tensor& x : xs) alone.add(table.sum_squares({&x, 1}));
  check_same_for_any_threads([&] { return Tensor::full({}, table.sum_squares(xs).value(), DType::f64); });
  CHECK(table.sum_squares(xs).value() == alone.value());
  CHECK(table.sum_squares({}).value() == 0);
  xs.push_back(Tensor::zeros({3}, DType::i32));
  CHECK_THROWS(table.sum_squares(xs));
}

TEST_CASE("sum_squares: the same bits however tensors are cut between rows, wherever the pieces lie") {
  for (const DType dtype : floating_dtypes) {
    for (const Shape& shape : {Shape{700, 300}, Shape{3, 50, 77}, Shape{2, 70001}, Shape{5000, 1}, Shape{9001}}) {
      const Tensor whole = random(shape, 11, dtype, uniform(-2, 2));
      const double expected = table.sum_squares({&whole, 1}).value();
      const int dim = shape.dims() == 3 ? 1 : 0;
      for (const std::int64_t parts : {2, 3, 7}) {
        std::vector<Tensor> pieces;
        for (std::int64_t i = parts; i-- > 0;) {
          const std::int64_t first = shape[dim] * i / parts, last = shape[dim] * (i + 1) / parts;
          const Tensor part = view::slice(whole, dim, first, last - first);
          const Tensor memory = Tensor::empty({part.count() + i}, dtype);  // pieces begin at unaligned addresses
          Tensor piece = view::reshape(view::slice(memory, 0, i, part.count()), part.shape());
          table.copy(part, piece);
          pieces.push_back(piece);
        }
        CHECK(table.sum_squares(pieces).value() == expected);
      }
    }
  }
}

TEST_CASE("reduce: the same for any number of threads") {
  for (const Shape& shape : {Shape{768, 128}, Shape{1500, 77}, Shape{300001}, Shape{40, 9000}}) {
    const Tensor x = random(shape, 5, DType::f32, uniform(-2, 2));
    for (unsigned mask = 1; mask < 1U << shape.dims(); ++mask) {
      check_same_for_any_threads([&] {
        Tensor y = Tensor::empty(reduced_shape(x, mask));
        table.reduce(Reduction::sum, x, y);
        return y;
      });
    }
    check_same_for_any_threads([&] { return Tensor::full({}, table.sum_squares({&x, 1}).value(), DType::f64); });
  }
}

TEST_CASE("cumsum: along the middle dim, from both ends, sums rounded once") {
  for (const DType dtype : floating_dtypes) {
    for (const Shape& shape :
         {Shape{3, 7, 5}, Shape{2, 40, 1}, Shape{19, 300, 1}, Shape{1, 1, 300}, Shape{2, 3, 700}, Shape{0, 2, 2}}) {
      for (const bool reverse : {false, true}) {
        const Tensor x = random(shape, 1, dtype);
        Tensor y = Tensor::empty(shape, dtype);
        table.cumsum(x, reverse, y);
        std::vector<double> expected = values(x);
        const std::int64_t length = shape[1], width = shape[2];
        for (std::int64_t n = 0; n < shape[0]; ++n) {
          for (std::int64_t d = 0; d < width; ++d) {
            double sum = 0;
            for (std::int64_t i = 0; i < length; ++i) {
              const std::int64_t row = reverse ? length - 1 - i : i;
              double& element = expected[static_cast<std::size_t>((n * length + row) * width + d)];
              element = sum += element;
            }
          }
        }
        check_close(y, expected, rounding(dtype), dtype == DType::f64 ? 1e-13 : 2e-5);
        check_same_for_any_threads([&] {
          Tensor again = Tensor::empty(shape, dtype);
          table.cumsum(x, reverse, again);
          return again;
        });
      }
    }
  }
}
