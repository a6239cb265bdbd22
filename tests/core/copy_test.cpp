// fill and copy between all dtypes and layouts.
#include "support.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

// Tensors of shape [5, 7, 19] with every kind of strides that copy treats differently.
std::vector<Tensor> layouts(DType dtype, unsigned seed) {
  const double low = is_floating(dtype) ? -2 : 0, high = is_floating(dtype) ? 2 : 100;
  return {
      random({5, 7, 19}, seed, dtype, uniform(low, high)),
      view::transpose(random({19, 7, 5}, seed + 1, dtype, uniform(low, high)), 0, 2),
      view::transpose(random({7, 5, 19}, seed + 2, dtype, uniform(low, high)), 0, 1),
      view::slice(random({5, 7, 40}, seed + 3, dtype, uniform(low, high)), 2, 3, 19),
      view::slice(random({5, 9, 19}, seed + 4, dtype, uniform(low, high)), 1, 2, 7),
  };
}

}  // namespace

TEST_CASE("copy: every layout to every layout keeps the elements") {
  for (const DType dtype : all_dtypes) {
    for (const Tensor& from : layouts(dtype, 1)) {
      for (Tensor& to : layouts(dtype, 50)) {
        copy(from, to);
        check_close(to, values(from), 0, 0);
      }
    }
  }
}

TEST_CASE("copy: transposed, in whole squares and at their edges; short rows of heads") {
  for (const DType dtype : all_dtypes) {
    const Tensor x = random_ids({150, 3, 70}, 1, 0, 101), heads = random_ids({2, 9, 5, 64}, 2, 0, 101);
    Tensor from = Tensor::empty(x.shape(), dtype), rows = Tensor::empty(heads.shape(), dtype);
    assign(from, values(x));
    assign(rows, values(heads));
    for (const Tensor& view : {view::transpose(from, 0, 2), view::transpose(from, 1, 2), view::transpose(rows, 1, 2)}) {
      Tensor to = Tensor::empty(view.shape(), dtype);
      copy(view, to);
      check_close(to, values(view), 0, 0);
    }
  }
}

TEST_CASE("copy: from a broadcast view, of no elements, of one element") {
  Tensor to = Tensor::empty({4, 3, 33}, DType::f32);
  const Tensor row = view::expand(random({33}, 1, DType::f32, uniform(-2, 2)), {4, 3, 33});
  const Tensor column = view::expand(random({4, 1, 1}, 2, DType::f32, uniform(-2, 2)), {4, 3, 33});
  copy(row, to);
  check_close(to, values(row), 0, 0);
  copy(column, to);
  check_close(to, values(column), 0, 0);
  Tensor none = Tensor::empty({3, 0, 2});
  copy(Tensor::empty({3, 0, 2}), none);
  Tensor scalar = Tensor::empty({}, DType::f16);
  copy(Tensor::full({}, 2.5, DType::f64), scalar);
  CHECK(scalar.item() == 2.5);
}

TEST_CASE("copy: every dtype to every dtype rounds once") {
  for (const DType from_dtype : all_dtypes) {
    for (const DType to_dtype : all_dtypes) {
      CAPTURE(name(from_dtype));
      CAPTURE(name(to_dtype));
      // Whole numbers up to 100 are exact in every dtype; fractions are copied between floating dtypes only.
      const Tensor whole = random_ids({3, 50}, 4, 0, 101);
      Tensor x = Tensor::empty({3, 50}, from_dtype), y = Tensor::empty({3, 50}, to_dtype);
      assign(x, values(whole));
      copy(x, y);
      check_close(y, values(whole), 0, 0);
      if (!is_floating(from_dtype) || !is_floating(to_dtype)) continue;
      const Tensor wide = random({3, 50}, 5, from_dtype, uniform(-2, 2)),
                   strided = view::transpose(random({50, 3}, 6, from_dtype, uniform(-2, 2)), 0, 1);
      Tensor expected = Tensor::empty({3, 50}, to_dtype);
      copy(wide, y);
      assign(expected, values(wide));
      check_close(y, values(expected), 0, 0);
      copy(strided, y);
      assign(expected, values(strided));
      check_close(y, values(expected), 0, 0);
    }
  }
}

TEST_CASE("copy: floats to integers drop the fraction; negative integers survive") {
  const std::vector<double> fractions = {1.75, -1.75, 0.5, -0.5, 100.999};
  Tensor x = Tensor::empty({5}, DType::f32), y = Tensor::empty({5}, DType::i32);
  assign(x, fractions);
  copy(x, y);
  CHECK(values(y) == std::vector<double>{1, -1, 0, 0, 100});
  Tensor wide = Tensor::empty({5}, DType::i64);
  copy(y, wide);
  CHECK(values(wide) == std::vector<double>{1, -1, 0, 0, 100});
}

TEST_CASE("fill: every dtype, through views, touching nothing else") {
  for (const DType dtype : all_dtypes) {
    Tensor whole = Tensor::full({6, 50}, 1, dtype);
    Tensor part = view::transpose(view::slice(view::slice(whole, 0, 1, 3), 1, 4, 21), 0, 1);
    kernels(Device::cpu).fill(part, 7);
    double sum = 0;
    for (const double v : values(whole)) sum += v;
    CHECK(sum == 6 * 50 + 6 * 3 * 21);
    CHECK(values(part) == std::vector<double>(63, 7));
  }
}

TEST_CASE("copy and fill: the same for any number of threads") {
  const Tensor x = view::transpose(random({401, 3, 97}, 9, DType::f32, uniform(-2, 2)), 0, 2);
  check_same_for_any_threads([&] { return cast(x, DType::bf16); });
  check_same_for_any_threads([&] { return clone(x); });
  check_same_for_any_threads([] { return Tensor::full({100003}, 3, DType::f16); });
}
