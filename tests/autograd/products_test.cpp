// Matrix products and attention.
#include "tests/support/gradcheck.h"

using namespace trireme;
using namespace trireme::testing;
using Inputs = std::vector<Tensor>;

TEST_CASE("matmul") {
  const std::vector<std::pair<Shape, Shape>> shapes = {
      {{3, 4}, {4, 5}}, {{1, 7}, {7, 1}}, {{2, 3, 4}, {2, 4, 5}}, {{2, 3, 4}, {4, 5}}, {{3, 4}, {2, 4, 5}}};
  for (const auto& [a, b] : shapes) {
    check_op("matmul " + to_string(a) + " @ " + to_string(b), [](const Inputs& x) { return matmul(x[0], x[1]); },
             {random(a, 1), random(b, 2)});
  }
  check_op("transposed operands", [](const Inputs& x) { return matmul(transpose(x[0], 0, 1), transpose(x[1], 0, 1)); },
           {random({4, 3}, 1), random({5, 4}, 2)});
  CHECK_THROWS_WITH_AS(matmul(random({2, 3}, 1), random({4, 5}, 2)), doctest::Contains("[2, 3] @ [4, 5]"), Error);
}

TEST_CASE("linear") {
  const auto with_bias = [](const Inputs& x) { return linear(x[0], x[1], x[2]); };
  check_op("linear", with_bias, {random({3, 4}, 1), random({5, 4}, 2), random({5}, 3)});
  check_op("linear of a batch", with_bias, {random({2, 3, 4}, 1), random({5, 4}, 2), random({5}, 3)});
  check_op("linear with a stacked weight", with_bias, {random({2, 4}, 1), random({3, 5, 4}, 2), random({3, 5}, 3)});
  check_op("linear without bias", [](const Inputs& x) { return linear(x[0], x[1], {}); },
           {random({3, 4}, 1), random({5, 4}, 2)});
}

TEST_CASE("linear onto a residual") {
  check_op("linear", [](const Inputs& x) { return linear(x[0], x[1], x[2], x[3]); },
           {random({2, 3, 4}, 1), random({5, 4}, 2), random({5}, 3), random({2, 3, 5}, 4)});
  CHECK_THROWS_WITH_AS(linear(random({3, 4}, 1), random({5, 4}, 2), {}, random({3, 4}, 3)),
                       doctest::Contains("a residual f64 [3, 4]; expected f64 [3, 5]"), Error);
}

TEST_CASE("mlp: gradients, with and without biases and a residual, in every recomputation") {
  const Inputs all = {random({2, 3, 4}, 1), random({6, 4}, 2), random({6}, 3),
                      random({5, 6}, 4),    random({5}, 5),    random({2, 3, 5}, 6)};
  for (const bool repeat : {false, true}) {
    const RepeatCheapInputs scope(repeat);
    CAPTURE(repeat);
    for (const Unary op : {Unary::gelu, Unary::gelu_tanh, Unary::relu, Unary::tanh})
      check_op(
          "mlp",
          [op](const Inputs& x) {
            return mlp(x[0], {x[1], x[2], x[3], x[4]}, op, x[5]);
          },
          all);
    check_op("mlp alone",
             [](const Inputs& x) {
               return mlp(x[0], {x[1], {}, x[2], {}}, Unary::silu);
             },
             {all[0], all[1], all[3]});
  }
  CHECK_THROWS_WITH_AS(mlp(all[0], {all[1], {}, all[1], {}}, Unary::gelu), doctest::Contains("second weight"), Error);
}

namespace {

/// Compares mlp with two linear and the activation between them, bit for bit: the result and all gradients.
void check_mlp(std::int64_t rows, std::int64_t in, std::int64_t hidden, std::int64_t out, DType dtype) {
  CAPTURE(name(dtype));
  std::vector<Inputs> results;
  for (const bool fused : {true, false}) {
    Inputs v = {random({rows, in}, 1, dtype),    random({hidden, in}, 2, dtype), random({hidden}, 3, dtype),
                random({out, hidden}, 4, dtype), random({out}, 5, dtype),        random({rows, out}, 6, dtype)};
    for (Tensor& leaf : v) require_grad(leaf);
    const Tensor y = fused ? mlp(v[0], {v[1], v[2], v[3], v[4]}, Unary::gelu, v[5])
                           : v[5] + linear(gelu(linear(v[0], v[1], v[2])), v[3], v[4]);
    backward(y, random({rows, out}, 7, dtype));
    results.push_back({y.detach()});
    for (const Tensor& leaf : v) results.back().push_back(grad(leaf));
  }
  for (std::size_t i = 0; i < results[0].size(); ++i) {
    CAPTURE(i);
    CHECK(relative_difference(results[0][i], results[1][i]) == 0);
  }
}

}  // namespace

TEST_CASE("mlp has the bits of two linear with the activation between, forward and backward, in every dtype") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const bool repeat : {false, true}) {
      const RepeatCheapInputs scope(repeat);
      check_mlp(37, 24, 96, 24, dtype);
    }
  }
}

TEST_CASE("mlp has those bits also for sizes beyond the caches, where the products apply the activation") {
  for (const DType dtype : {DType::f32, DType::bf16}) check_mlp(1030, 48, 1027, 24, dtype);  // not multiples of a tile
}

TEST_CASE("a gradient marked as zero is overwritten, whatever it holds, and is zero without a contribution") {
  const Tensor x = random({4, 7}, 3, DType::f32), dy = random({4, 5}, 4, DType::f32);
  Tensor weight = random({5, 7}, 1, DType::f32), unused = random({3}, 2, DType::f32);
  require_grad(weight);
  require_grad(unused);
  backward(linear(x, weight, {}), dy);
  const Tensor expected = clone(grad(weight));
  for (const Tensor& leaf : {weight, unused}) {
    leaf_of(leaf)->set_grad(Tensor::full(leaf.shape(), std::nan("")));
    leaf_of(leaf)->mark_zero();
  }
  backward(linear(x, weight, {}), dy);
  CHECK(relative_difference(grad(weight), expected) == 0);
  CHECK(relative_difference(grad(unused) + 1.0, Tensor::full({3}, 1.0)) == 0);
  backward(linear(x, weight, {}), dy);
  CHECK(relative_difference(grad(weight), expected + expected) < 1e-6);
  kernels(Device::cpu).fill(leaf_of(unused)->grad(), std::nan(""));
  leaf_of(unused)->mark_zero();
  backward(unused + unused, Tensor::full({3}, 1.0));  // this gradient is not a product
  CHECK(relative_difference(grad(unused), Tensor::full({3}, 2.0)) == 0);
}

TEST_CASE("linear accumulates a weight gradient in the f32 tensor the leaf already has") {
  const Tensor x = random({6, 4}, 1, DType::bf16), value = random({5, 4}, 2, DType::bf16);
  Tensor weight = value;
  require_grad(weight);
  leaf_of(weight)->grad() = Tensor::full({5, 4}, 100.0);
  int ready = 0;
  leaf_of(weight)->on_grad_ready([&] { ++ready; });
  const Tensor y = linear(x, weight, {});
  backward(y, sum_weights(y.shape(), DType::bf16));
  CHECK(ready == 1);
  const Tensor expected =
      matmul(transpose(cast(sum_weights({6, 5}, DType::bf16), DType::f64), 0, 1), cast(x, DType::f64));
  CHECK(relative_difference(grad(weight), cast(expected, DType::f64) + 100.0) < 1e-7);
}

TEST_CASE("attention") {
  for (const bool causal : {true, false}) {
    const auto f = [causal](const Inputs& x) { return attention(x[0], x[1], x[2], causal); };
    check_op("attention", f, {random({2, 5, 3, 4}, 1), random({2, 5, 3, 4}, 2), random({2, 5, 3, 4}, 3)});
    check_op("grouped heads", f, {random({1, 4, 4, 3}, 1), random({1, 4, 2, 3}, 2), random({1, 4, 2, 3}, 3)});
    check_op("more keys than queries", f, {random({1, 3, 2, 4}, 1), random({1, 6, 2, 4}, 2), random({1, 6, 2, 4}, 3)});
    check_op("packed", [causal](const Inputs& x) { return attention_packed(x[0], causal); },
             {random({2, 5, 3, 2, 4}, 1)});
  }
}

TEST_CASE("attention equals its definition") {
  const Tensor q = random({1, 6, 1, 4}, 1), k = random({1, 6, 1, 4}, 2), v = random({1, 6, 1, 4}, 3);
  Tensor mask = Tensor::zeros({6, 6}, DType::f64);
  for (int i = 0; i < 6; ++i) {
    for (int j = i + 1; j < 6; ++j) mask.data<double>()[i * 6 + j] = -1e30;
  }
  const auto matrix = [](const Tensor& x) { return reshape(x, {6, 4}); };
  const Tensor scores = matmul(matrix(q), transpose(matrix(k), 0, 1)) * 0.5 + mask;
  CHECK(relative_difference(matrix(attention(q, k, v)), matmul(softmax(scores), matrix(v))) < 1e-13);
}
