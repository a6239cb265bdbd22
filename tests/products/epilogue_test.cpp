// The fused epilogue of a matrix product: activation, its derivative, residual. It is compared with f64, and bit for
// bit with separate kernels, for every implementation, dtype and way to split the product.
#include <doctest/doctest.h>

#include <initializer_list>

#include "core/gemm_steps.h"
#include "core/kernels.h"
#include "tests/products/each_product.h"
#include "tests/products/reference.h"
#include "tests/products/units.h"
#include "tests/support/sanitized.h"

namespace trireme {
namespace epilogue_test {
namespace {

using testing::for_each_way;
using testing::random;
using testing::same_bits;
using testing::values;

struct Case {
  std::int64_t m, n, k;
  Shape leading = {};
};

/// x [leading.., m, k] @ w^T, w [n, k], and the operands of a layer's epilogue.
struct Layer {
  Tensor x, w, bias, residual, before;
  Shape result;
  Layer(const Case& size, DType dtype) {
    const auto shape = [&](std::int64_t columns) {
      return size.leading.dims() == 0 ? Shape{size.m, columns} : Shape{size.leading[0], size.m, columns};
    };
    result = shape(size.n);
    x = random(shape(size.k), 1, dtype);
    w = random({size.n, size.k}, 2, dtype);
    bias = random({size.n}, 3, dtype);
    residual = random(result, 4, dtype);
    before = random(result, 5, dtype);
  }
  Tensor by(void (*product)(const Tensor&, const Tensor&, Tensor&, const GemmOptions&),
            const GemmOptions& options) const {
    Tensor c = Tensor::full(result, NAN, x.dtype());
    Tensor b = view::transpose(w, 0, 1);
    if (x.dims() == 3) b = view::expand(b, {x.size(0), w.size(1), w.size(0)});
    product(x, b, c, options);
    return c;
  }
};

void fused(const Tensor& a, const Tensor& b, Tensor& c, const GemmOptions& options) {
  kernels(Device::cpu).gemm(a, b, c, options);
}
void in_steps(const Tensor& a, const Tensor& b, Tensor& c, const GemmOptions& options) {
  gemm_in_steps(kernels(Device::cpu), a, b, c, options);
}

void check_all(const Case& size, DType dtype,
               std::initializer_list<Unary> activations = {Unary::gelu, Unary::gelu_tanh, Unary::silu, Unary::relu}) {
  if (!testing::selected_computes(dtype)) return;
  CAPTURE(fmt::format("{} {} {} {} {} {}", selected_gemm(), name(dtype), size.m, size.n, size.k, size.leading.dims()));
  const Layer layer(size, dtype);
  for (const Unary op : activations) {
    Tensor u = Tensor::full(layer.result, NAN, dtype), v = Tensor::full(layer.result, NAN, dtype);
    CHECK(same_bits(
        layer.by(fused, {.bias = layer.bias, .activation = op, .pre_activation = u, .residual = layer.residual}),
        layer.by(in_steps, {.bias = layer.bias, .activation = op, .pre_activation = v, .residual = layer.residual})));
    CHECK(same_bits(u, v));
    CHECK(same_bits(layer.by(fused, {.activation = op}), layer.by(in_steps, {.activation = op})));
    const GemmOptions back = {.alpha = 0.5, .activation = op, .derivative = true, .pre_activation = layer.before};
    CHECK(same_bits(layer.by(fused, back), layer.by(in_steps, back)));
  }
  const GemmOptions sum = {.bias = layer.bias, .residual = layer.residual};
  CHECK(same_bits(layer.by(fused, sum), layer.by(in_steps, sum)));
}

}  // namespace

TEST_CASE("a fused epilogue gives the bits of separate kernels") {
  testing::for_each_product([] {
    for_each_way({DType::f64, DType::f32, DType::bf16, DType::f16}, [](DType dtype) {
      for (const Case& size : {Case{1, 7, 5}, Case{3, 130, 64}, Case{37, 53, 29}, Case{70, 96, 48}, Case{33, 45, 2500},
                               Case{9, 31, 17, {3}}, Case{0, 5, 4}, Case{6, 5, 0}})
        check_all(size, dtype);
    });
  });
}

TEST_CASE("a fused epilogue of a result larger than the caches gives the bits of separate kernels" *
          doctest::test_suite("thorough")) {
  for_each_way({DType::f64, DType::f32, DType::bf16, DType::f16}, [](DType dtype) {
    if (testing::sanitized && (dtype == DType::f64 || dtype == DType::f16)) return;
    check_all({1027, 1023, 20}, dtype);                                            // fits no tile
    if (!testing::sanitized) check_all({1030, 1021, 1100}, dtype, {Unary::gelu});  // several blocks of K
  });
}

TEST_CASE("a fused epilogue against f64: SiLU, its derivative, and a residual") {
  const Layer layer({37, 53, 29}, DType::f32);
  const std::vector<double> x = values(layer.x), w = values(layer.w), bias = values(layer.bias),
                            residual = values(layer.residual), before = values(layer.before);
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  const Tensor u = Tensor::empty(layer.result);
  const std::vector<double>
      forward = values(layer.by(
          fused, {.bias = layer.bias, .activation = Unary::silu, .pre_activation = u, .residual = layer.residual})),
      stored = values(u),
      backward =
          values(layer.by(fused, {.activation = Unary::silu, .derivative = true, .pre_activation = layer.before}));
  for (std::size_t i = 0; i < 37 * 53; ++i) {
    double sum = 0;
    for (std::size_t k = 0; k < 29; ++k) sum += x[i / 53 * 29 + k] * w[i % 53 * 29 + k];
    const double pre = sum + bias[i % 53], s = sigmoid(before[i]);
    CHECK(stored[i] == doctest::Approx(pre).epsilon(1e-5));
    CHECK(std::abs(forward[i] - (pre * sigmoid(pre) + residual[i])) < 1e-4);
    CHECK(std::abs(backward[i] - sum * s * (1 + before[i] * (1 - s))) < 1e-4);
  }
}

TEST_CASE("a fused epilogue: contradictory options are refused") {
  const Tensor x = Tensor::zeros({4, 4}, DType::bf16);
  Tensor c = Tensor::zeros({4, 4}, DType::bf16), wide = Tensor::zeros({4, 4});
  const auto multiply = [&](Tensor& to, const GemmOptions& options) { kernels(Device::cpu).gemm(x, x, to, options); };
  CHECK_THROWS_WITH(multiply(c, {.beta = 1, .activation = Unary::gelu}), doctest::Contains("with beta 1"));
  CHECK_THROWS_WITH(multiply(wide, {.activation = Unary::gelu}), doctest::Contains("expected the same dtype"));
  CHECK_THROWS_WITH(multiply(c, {.activation = Unary::gelu, .derivative = true}), doctest::Contains("pre_activation"));
  CHECK_THROWS_WITH(multiply(c, {.derivative = true}), doctest::Contains("a derivative without an activation"));
  CHECK_THROWS_WITH(multiply(c, {.pre_activation = c}), doctest::Contains("pre_activation without an activation"));
  CHECK_THROWS_WITH(multiply(c, {.residual = Tensor::zeros({4, 5}, DType::bf16)}), doctest::Contains("same shape"));
}

}  // namespace epilogue_test
}  // namespace trireme
