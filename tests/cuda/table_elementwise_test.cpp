// Memory, elementwise and reduction entries of the CUDA kernel table against the CPU's.
#include "tests/cuda/table_support.h"
#include "tests/support/unary_functions.h"

using namespace trireme;
using namespace cuda_test;

namespace table_elementwise_test {
namespace {

constexpr DType kAll[] = {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8};
/// The views that tests look through, over a [4, 3, 10] tensor.
const std::vector<Tensor (*)(const Tensor&)> kViews = {
    [](const Tensor& x) { return x; },
    [](const Tensor& x) { return view::slice(x, 1, 1, 2); },
    [](const Tensor& x) { return view::slice(x, 2, 3, 5); },
    [](const Tensor& x) { return view::transpose(x, 0, 2); },
    [](const Tensor& x) { return view::transpose(view::slice(x, 0, 1, 2), 1, 2); },
    [](const Tensor& x) { return view::select(x, 2, 4); },
    [](const Tensor& x) { return view::slice(x, 0, 2, 0); },
};

/// Whole numbers from 0 to 99, which every dtype holds.
Tensor whole_numbers(const Shape& shape, DType dtype) {
  Tensor x = random(shape, 8, DType::f64, uniform(-1, 1));
  for (double& value : x.span<double>()) value = std::floor(50 + 50 * value);
  return cast(x, dtype);
}

}  // namespace

TEST_CASE("cuda table: fill writes a view and nothing beside it, in every dtype") {
  const cuda::ScopedEmulatedDevice device;
  for (const DType dtype : kAll)
    for (const auto& look : kViews)
      for (const double value : {0.0, 3.0}) {
        const Tensor x = whole_numbers({4, 3, 10}, dtype), x2 = there(x);
        Tensor y = look(x), y2 = look(x2);
        host().fill(y, value);
        gpu().fill(y2, value);
        CHECK(same_bits_there(x2, x));
      }
}

TEST_CASE("cuda table: copy from any view in any dtype to any other, on the device and across") {
  const cuda::ScopedEmulatedDevice device;
  for (const DType from : kAll)
    for (const DType to : kAll)
      for (const int step : {1, 3}) {  // two views for each pair of dtypes
        const auto look =
            kViews[static_cast<std::size_t>(static_cast<int>(from) + step * static_cast<int>(to)) % kViews.size()];
        const Tensor x = whole_numbers({4, 3, 10}, from), x2 = there(x);
        const Tensor expected = cast(look(x), to);
        CHECK(same_bits_there(cast(look(x2), to), expected));
        CHECK(same_bits_there(clone(look(x2)), look(x)));
        const Tensor y = whole_numbers({4, 3, 10}, to), y2 = there(y);
        Tensor part = look(y), part2 = look(y2);
        copy(expected, part);
        copy(look(x), part2);  // from the host into a view
        CHECK(same_bits_there(y2, y));
        copy(look(x2), part);  // and back
        CHECK(same_bits_there(y2, y));
      }
}

TEST_CASE("cuda table: unary functions and their derivatives, in place too") {
  const cuda::ScopedEmulatedDevice device;
  under_schedules([] {
    for (const DType dtype : DTypes::training)
      for (const testing::UnaryFunction& f : testing::unary_functions)
        for (const Shape& shape : {Shape{3, 70}, Shape{}, Shape{0, 4}}) {
          CAPTURE(f.name);
          Tensor x = random(shape, 1, dtype, uniform(-1, 1));
          if (f.low > 0) {
            host().unary(Unary::square, x, x);
            const Tensor shift = Tensor::full({}, 0.1, dtype);
            host().binary(Binary::add, x, view::expand(shift, shape), x);
          }
          const Tensor dy = random(shape, 2, dtype, uniform(-1, 1));
          Tensor y = Tensor::empty(shape, dtype), dx = Tensor::empty(shape, dtype), x2 = there(x), dx2 = there(dy);
          host().unary(f.op, x, y);
          host().unary_backward(f.op, x, dy, dx);
          gpu().unary_backward(f.op, x2, dx2, dx2);
          gpu().unary(f.op, x2, x2);
          CHECK(difference(x2, y) < 1);
          CHECK(difference(dx2, dx) < 1);
        }
  });
}

TEST_CASE("cuda table: arithmetic over dense, broadcast and turned operands, in place too") {
  const cuda::ScopedEmulatedDevice device;
  under_schedules([] {
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (const Binary op : {Binary::add, Binary::subtract, Binary::multiply, Binary::divide, Binary::equal,
                              Binary::not_equal, Binary::less, Binary::less_equal, Binary::maximum, Binary::minimum}) {
        const Shape shape = {2, 5, 9};
        const auto check = [&](const Tensor& a, const Tensor& b, auto&& look_a, auto&& look_b) {
          Tensor y = Tensor::empty(shape, dtype), y2 = like(y);
          host().binary(op, look_a(a), look_b(b), y);
          gpu().binary(op, look_a(there(a)), look_b(there(b)), y2);
          CHECK(difference(y2, y) < 1);
        };
        const auto wide = [&](const Tensor& x) { return view::expand(x, shape); };
        const auto turned = [](const Tensor& x) { return view::transpose(x, 0, 2); };
        const Tensor x = random(shape, 1, dtype, uniform(-1, 1)), row = random({9}, 2, dtype, uniform(-1, 1)),
                     column = random({5, 1}, 3, dtype, uniform(-1, 1));
        check(x, x, wide, wide);
        check(x, row, wide, wide);
        check(column, row, wide, wide);
        check(random({9, 5, 2}, 4, dtype, uniform(-1, 1)), random({}, 5, dtype, uniform(-1, 1)), turned, wide);
        Tensor y = clone(x), y2 = there(x);
        host().binary(op, y, wide(row), y);
        gpu().binary(op, y2, wide(there(row)), y2);
        CHECK(difference(y2, y) < 1);
      }
  });
}

TEST_CASE("cuda table: powers, and where over dense, broadcast and turned operands") {
  const cuda::ScopedEmulatedDevice device;
  under_schedules([] {
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (const Shape& shape : {Shape{2, 5, 9}, Shape{2, 5, 16}}) {
        const auto wide = [&](const Tensor& x) { return view::expand(x, shape); };
        const Tensor a = random(shape, 1, dtype, uniform(-1, 1)), b = random({5, 1}, 2, dtype, uniform(-1, 1)),
                     number = random(shape, 3, dtype, uniform(-1, 1)),
                     turned = random({shape[2], 5, 2}, 4, dtype, uniform(-1, 1));
        Tensor mask = Tensor::empty(shape, dtype), y = Tensor::empty(shape, dtype), y2 = there(mask);
        host().binary(Binary::less, number, wide(Tensor::zeros({}, dtype)), mask);
        host().where(mask, a, wide(b), y);
        gpu().where(there(mask), there(a), wide(there(b)), y2);
        CHECK(same_bits_there(y2, y));
        host().where(mask, wide(b), view::transpose(turned, 0, 2), y);
        gpu().where(there(mask), wide(there(b)), view::transpose(there(turned), 0, 2), y2);
        CHECK(same_bits_there(y2, y));
        const Tensor base = random(shape, 5, dtype, uniform(0.5, 2));
        host().binary(Binary::power, base, a, y);
        gpu().binary(Binary::power, there(base), there(a), y2);
        CHECK(difference(y2, y) < 1);
      }
  });
}

TEST_CASE("cuda table: running sums along the middle dim, from both ends") {
  const cuda::ScopedEmulatedDevice device;
  under_schedules([] {
    for (const DType dtype : DTypes::training)
      for (const Shape& shape : {Shape{3, 7, 5}, Shape{140, 9, 1}, Shape{1, 1, 3}, Shape{0, 2, 2}})
        for (const bool reverse : {false, true}) {
          const Tensor x = random(shape, 1, dtype, uniform(-1, 1));
          Tensor y = Tensor::empty(shape, dtype), y2 = there(x);
          host().cumsum(x, reverse, y);
          gpu().cumsum(there(x), reverse, y2);
          CHECK(same_bits_there(y2, y));
        }
  });
}

TEST_CASE("cuda table: axpby between any floating dtypes; b = 0 ignores NaN") {
  const cuda::ScopedEmulatedDevice device;
  for (const DType from : {DType::f64, DType::f32, DType::bf16, DType::f16})
    for (const DType to : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (const double b : {0.0, 0.75}) {
        const Tensor x = random({3, 43}, 1, from, uniform(-1, 1));
        Tensor y = b == 0 ? Tensor::full({3, 43}, NAN, to) : random({3, 43}, 2, to, uniform(-1, 1)), y2 = there(y);
        host().axpby(-1.5, x, b, y);
        gpu().axpby(-1.5, there(x), b, y2);
        CHECK(difference(y2, y) < 1);
      }
}

TEST_CASE("cuda table: multiply_by reads its factor there") {
  const cuda::ScopedEmulatedDevice device;
  under_schedules([] {
    for (const DType dtype : DTypes::training)
      for (const double factor : {1.0, 0.3}) {
        const Tensor value = Tensor::full({}, factor);
        Tensor x = random({3, 43}, 1, dtype, uniform(-1, 1)), x2 = there(x);
        host().multiply_by(value, x);
        gpu().multiply_by(there(value), x2);
        CHECK(difference(x2, x) < 1);
      }
  });
  const Tensor value = Tensor::full({}, 0.3);  // more elements than a thread for each piece would take
  Tensor x = random({1'100'001}, 1, DType::bf16, uniform(-1, 1)), x2 = there(x);
  host().multiply_by(value, x);
  gpu().multiply_by(there(value), x2);
  CHECK(difference(x2, x) < 1);
}

TEST_CASE("cuda table: dropout of a shard has the CPU's mask") {
  const cuda::ScopedEmulatedDevice device;
  under_schedules([] {
    for (const DType dtype : DTypes::training) {
      const Tensor x = random({3, 4, 6}, 1, dtype, uniform(-1, 1));
      const Rectangle where = {.global = {6, 4, 11}, .start = {2, 0, 5}};
      Tensor y = Tensor::empty(x.shape(), dtype), y2 = there(x);
      host().dropout(x, 0.3, 17, 5, where, y);
      gpu().dropout(y2, 0.3, 17, 5, where, y2);
      CHECK(same_bits_there(y2, y));
    }
  });
}

TEST_CASE("cuda table: rounding of a shard at random gives the CPU's bits") {
  const cuda::ScopedEmulatedDevice device;
  under_schedules([] {
    struct Case {
      Shape local, whole, begin;
    };
    for (const Case& c : {Case{{3, 4, 6}, {6, 4, 11}, {2, 0, 5}}, Case{{7, 16}, {7, 16}, {0, 0}},
                          Case{{6, 1}, {6, 5}, {0, 2}}, Case{{1030}, {2000}, {7}}, Case{{0, 3}, {4, 3}, {4, 0}}}) {
      const Tensor x = random(c.local, 1, DType::f32, uniform(-1, 1));
      Tensor y = Tensor::empty(c.local, DType::bf16), y2 = like(y);
      host().round_at_random(x, 17, 5, {c.whole, c.begin}, y);
      gpu().round_at_random(there(x), 17, 5, {c.whole, c.begin}, y2);
      CHECK(same_bits_there(y2, y));
    }
  });
}

TEST_CASE("cuda table: swiglu and its gradient, over x") {
  const cuda::ScopedEmulatedDevice device;
  under_schedules([] {
    for (const DType dtype : DTypes::training)
      for (const std::int64_t width : {1, 37}) {
        const Tensor x = random({4, 2 * width}, 1, dtype, uniform(-1, 1)),
                     dy = random({2, 2, width}, 2, dtype, uniform(-1, 1));  // rows of any shape
        Tensor y = Tensor::empty(dy.shape(), dtype), dx = Tensor::empty(x.shape(), dtype), y2 = like(y), dx2 = there(x);
        host().swiglu(x, y);
        host().swiglu_backward(x, dy, dx);
        gpu().swiglu(dx2, y2);
        gpu().swiglu_backward(dx2, there(dy), dx2);
        CHECK(difference(y2, y) < 1);
        CHECK(difference(dx2, dx) < 1);
      }
  });
}

TEST_CASE("cuda table: reductions over any dims of views, and the sum of squares") {
  const cuda::ScopedEmulatedDevice device;
  under_schedules([] {
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
      const auto check = [&](const Shape& shape, const Shape& kept, auto&& look) {
        const Tensor x = random(shape, 1, dtype, uniform(-1, 1)), x2 = there(x);
        for (const Reduction op : {Reduction::sum, Reduction::max}) {
          for (const DType result : {dtype, accumulate_dtype(dtype)}) {
            Tensor y = Tensor::empty(kept, result), y2 = like(y);
            host().reduce(op, look(x), y);
            gpu().reduce(op, look(x2), y2);
            CHECK(difference(y2, y) < 1);
          }
        }
      };
      const auto whole = [](const Tensor& x) { return x; };
      check({7, 33}, {7, 1}, whole);
      check({33, 7}, {1, 7}, whole);
      check({520, 3}, {1, 3}, whole);  // in parts, by columns
      check({3, 4, 5}, {1, 1, 1}, whole);
      check({3, 4, 5}, {5, 1, 3}, [](const Tensor& x) { return view::transpose(x, 0, 2); });
      check({2, 6, 5}, {1, 3, 5}, [](const Tensor& x) { return view::slice(x, 1, 2, 3); });
      check({0, 5}, {1, 5}, whole);
      check({4, 0}, {1, 0}, whole);
      for (const std::int64_t count : {0, 1, 5001}) {
        const Tensor x = random({count}, 2, dtype, uniform(-1, 1));
        const Tensor x2 = there(x);
        CHECK(gpu().sum_squares({&x2, 1}).value() ==
              doctest::Approx(host().sum_squares({&x, 1}).value()).epsilon(1e-12));
      }
    }
  });
}

TEST_CASE("cuda table: f64 functions, host tensors and views for dense are refused") {
  const cuda::ScopedEmulatedDevice device;
  Tensor wide = Tensor::zeros({4, 8}, DType::f64, Device::cuda), here = Tensor::zeros({4, 8});
  Tensor x = there(here), turned = view::transpose(x, 0, 1);
  check_refused([&] { gpu().unary(Unary::exp, wide, wide); }, "unary has no cuda kernel for f64");
  check_refused([&] { gpu().swiglu(wide, wide); }, "swiglu has no cuda kernel for f64");
  CHECK(contains(error_of([&] { gpu().unary(Unary::exp, here, x); }), "[unary] a tensor [4, 8] is on cpu"));
  CHECK(contains(error_of([&] { gpu().fill(here, 1); }), "[fill] a tensor [4, 8] is on cpu"));
  CHECK(contains(error_of([&] { gpu().axpby(1, turned, 1, turned); }), "expected a dense one"));
  CHECK(contains(error_of([&] { gpu().binary(Binary::add, x, wide, x); }), "holds f64; expected f32"));
}

}  // namespace table_elementwise_test
