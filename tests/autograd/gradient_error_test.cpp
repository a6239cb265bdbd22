// gradient_error() finds wrong gradients, and none in right ones.
#include "autograd/gradcheck.h"

#include <doctest/doctest.h>

#include "autograd/op.h"
#include "autograd/ops.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

using namespace trireme;
using namespace trireme::testing;

namespace gradient_error_test {
namespace {

/// x y, of which `wrong` changes one element of one gradient by one percent.
struct Product : Op {
  static constexpr const char* name = "product";
  bool wrong = false;
  Tensor x, y;
  Tensor forward(const Tensor& a, const Tensor& b) {
    x = a, y = b;
    return a * b;
  }
  Gradients backward(const Tensor& dz) const {
    Tensor dy = clone(dz * x);
    if (wrong) dy.data<double>()[2] *= 1.01;
    return {dz * y, dy};
  }
};

struct OfOtherDtype : Op {
  static constexpr const char* name = "of_other_dtype";
  Tensor forward(const Tensor& x) { return clone(x); }
  Gradients backward(const Tensor& dy) const { return {cast(dy, DType::f64)}; }
};

using Inputs = std::vector<Tensor>;

double error_of_product(bool wrong, const Inputs& inputs) {
  Product product;
  product.wrong = wrong;
  return gradient_error([&](const Inputs& in) { return apply(product, in[0], in[1]); }, inputs);
}

}  // namespace

TEST_CASE("a right gradient has a small error, and one wrong element of it a large one") {
  const Inputs inputs = {random({2, 3}, 1), random({2, 3}, 2)};
  CHECK(error_of_product(false, inputs) < 1e-8);
  CHECK(error_of_product(true, inputs) > 1e-4);
}

TEST_CASE("a gradient of another dtype than its input is refused") {
  Tensor x = random({3}, 1, DType::f32);
  require_grad(x);
  CHECK(says(error_of([&] { backward(sum(apply(OfOtherDtype{}, x))); }, ExitCode::internal),
             "[of_other_dtype] backward returned a gradient in f64 of input 0; expected f32; cast() it"));
}

TEST_CASE("inputs are not changed, and may be views") {
  const Tensor x = random({3, 2}, 1), before = clone(x);
  CHECK(error_of_product(false, {view::transpose(x, 0, 1), random({2, 3}, 2)}) < 1e-8);
  CHECK(same_bits(x, before));
  CHECK(!x.requires_grad());
}

TEST_CASE("operations of several steps, with results of several elements") {
  const auto f = [](const Inputs& in) { return softmax(linear(in[0], in[1], in[2]), 0); };
  CHECK(gradient_error(f, {random({4, 3}, 1), random({5, 3}, 2), random({5}, 3)}) < 1e-8);
  CHECK(gradient_error([](const Inputs& in) { return abs(in[0]); }, {Tensor::zeros({1}, DType::f64)}) == 0);
  CHECK(gradient_error([](const Inputs& in) { return relu(in[0]); }, {Tensor::zeros({1}, DType::f64)}) > 0.1);
}

TEST_CASE("inputs without a gradient, and inputs in f32, are refused") {
  const auto first = [](const Inputs& in) { return square(in[0]); };
  CHECK(says(error_of(
                 [&] {
                   gradient_error(first, {random({2}, 1), random({2}, 2)});
                 },
                 ExitCode::internal),
             "[gradient_error] input 1 got no gradient"));
  CHECK(says(error_of([&] { gradient_error(first, {random({2}, 1, DType::f32)}); }, ExitCode::internal),
             "[gradient_error] input 0 is not an f64 tensor"));
}

}  // namespace gradient_error_test
