// The operations of a mixture of experts: gather_rows, pick, grouped_linear and with_auxiliary_loss.
#include "tests/support/gradcheck.h"

using namespace trireme;
using namespace trireme::testing;
using Inputs = std::vector<Tensor>;

namespace {

Tensor indices(std::initializer_list<std::int32_t> values, const Shape& shape) {
  const std::vector<std::int32_t> list = values;
  return Tensor::from(std::span<const std::int32_t>(list), shape);
}

}  // namespace

TEST_CASE("gather_rows: rows by index, repeated or unused; index -1 gives zeros") {
  const Tensor index = indices({2, -1, 0, 2, 2}, {5});
  check_op("gather_rows", [&](const Inputs& x) { return gather_rows(x[0], index); }, {random({4, 3}, 1)});
  const Tensor x = random({4, 3}, 1), y = gather_rows(x, index);
  for (int i = 0; i < 3; ++i) {
    CHECK(y.data<double>()[i] == x.data<double>()[2 * 3 + i]);
    CHECK(y.data<double>()[3 + i] == 0);
  }
  const Tensor none = gather_rows(x, indices({}, {0}));
  CHECK(none.shape() == Shape{0, 3});
  CHECK(relative_difference(gather_rows(none, indices({-1, -1}, {2})), Tensor::zeros({2, 3}, DType::f64)) == 0);
}

TEST_CASE("pick: named elements of each row") {
  const Tensor columns = indices({3, 0, 1, 1, 0, 2}, {3, 2});
  check_op("pick", [&](const Inputs& x) { return pick(x[0], columns); }, {random({3, 4}, 1)});
  const Tensor x = random({3, 4}, 1), y = pick(x, columns);
  for (int i = 0; i < 6; ++i)
    CHECK(y.data<double>()[i] == x.data<double>()[i / 2 * 4 + columns.data<std::int32_t>()[i]]);
}

TEST_CASE("grouped_linear: each group of rows meets its own matrix; groups may be empty") {
  for (const std::vector<std::int64_t>& starts :
       std::vector<std::vector<std::int64_t>>{{0, 2, 2, 6, 7}, {0, 0, 0, 0, 7}, {0, 7, 7, 7, 7}, {0, 1, 3, 4, 7}}) {
    const auto f = [&](const Inputs& x) { return grouped_linear(x[0], starts, x[1], x[2]); };
    check_op("grouped_linear", f, {random({7, 3}, 1), random({4, 5, 3}, 2), random({4, 5}, 3)});
    check_op("grouped_linear without bias", [&](const Inputs& x) { return grouped_linear(x[0], starts, x[1], {}); },
             {random({7, 3}, 1), random({4, 2, 2, 3}, 2)});
    const Tensor x = random({7, 3}, 1), w = random({4, 5, 3}, 2), b = random({4, 5}, 3);
    const Tensor y = f({x, w, b});
    for (std::size_t g = 0; g < 4; ++g) {
      const std::int64_t count = starts[g + 1] - starts[g];
      if (count == 0) continue;
      const auto group = static_cast<std::int64_t>(g);
      const Tensor expected =
          linear(view::slice(x, 0, starts[g], count), view::select(w, 0, group), view::select(b, 0, group));
      CHECK(relative_difference(view::slice(y, 0, starts[g], count), expected) < 1e-15);
    }
  }
}

TEST_CASE("grouped_linear without any row gives every group a gradient of zeros") {
  Tensor x = Tensor::zeros({0, 3}, DType::f64), w = random({2, 5, 3}, 2), b = random({2, 5}, 3);
  for (Tensor* t : {&x, &w, &b}) require_grad(*t);
  const Tensor y = grouped_linear(x, {0, 0, 0}, w, b);
  backward(y, Tensor::zeros(y.shape(), DType::f64));
  for (const Tensor& t : {w, b}) {
    REQUIRE(grad(t).defined());
    CHECK(relative_difference(grad(t), Tensor::zeros(t.shape(), DType::f64)) == 0);
  }
  CHECK(grad(x).shape() == Shape{0, 3});
}

TEST_CASE("grouped_linear accumulates weight gradients in the f32 tensor the leaf already has") {
  const std::vector<std::int64_t> starts = {0, 2, 6};
  const Tensor x = random({6, 4}, 1, DType::bf16);
  Tensor weight = random({2, 5, 4}, 2, DType::bf16), wide = cast(weight, DType::f64);
  require_grad(weight);
  require_grad(wide);
  leaf_of(weight)->grad() = Tensor::full({2, 5, 4}, 100.0);
  const Tensor y = grouped_linear(x, starts, weight, {});
  backward(y, sum_weights(y.shape(), DType::bf16));
  backward(grouped_linear(cast(x, DType::f64), starts, wide, {}),
           cast(sum_weights(y.shape(), DType::bf16), DType::f64));
  CHECK(relative_difference(grad(weight), grad(wide) + 100.0) < 1e-7);
}

TEST_CASE("an auxiliary loss changes no value, and its gradient is added in backward") {
  Tensor x = random({3, 4}, 1);
  require_grad(x);
  const Tensor y = with_auxiliary_loss(x * 2.0, sum(square(x)) * 0.5);
  CHECK(relative_difference(y, x.detach() * 2.0) == 0);
  backward(sum(y * 3.0));
  CHECK(relative_difference(grad(x), x.detach() + 6.0) < 1e-15);

  Tensor z = random({3, 4}, 1);
  require_grad(z);
  backward(with_auxiliary_loss(z * 2.0, sum(square(z)) * 0.5) * 1.0, Tensor::zeros({3, 4}, DType::f64));
  CHECK(relative_difference(grad(z), z.detach()) == 0);  // only the auxiliary loss contributes
}
