// Every operation except products: gradients against finite differences, over shapes, strides and dtypes.
#include "autograd/pool.h"
#include "tests/support/gradcheck.h"
#include "tests/support/unary_functions.h"

using namespace trireme;
using namespace trireme::testing;
using Inputs = std::vector<Tensor>;

namespace {

/// Values of at least 0.5: near zero, division, logarithm and square root are too steep for finite differences.
Tensor positive(const Shape& shape, std::uint64_t stream) {
  Tensor x = random(shape, stream);
  for (double& v : x.span<double>()) v = 0.5 + std::abs(v);
  return x;
}

}  // namespace

TEST_CASE("binary operations broadcast, and sum gradients over what was broadcast") {
  const std::vector<std::pair<Shape, Shape>> shapes = {{{3, 4}, {3, 4}}, {{3, 4}, {4}}, {{2, 3, 5}, {3, 1}},
                                                       {{1, 4}, {3, 1}}, {{}, {2, 3}},  {{2, 1, 3, 1}, {4, 1, 5}}};
  for (const auto& [a, b] : shapes) {
    const std::string where = to_string(a) + " with " + to_string(b);
    check_op("add " + where, [](const Inputs& x) { return x[0] + x[1]; }, {random(a, 1), random(b, 2)});
    check_op("subtract " + where, [](const Inputs& x) { return x[0] - x[1]; }, {random(a, 1), random(b, 2)});
    check_op("multiply " + where, [](const Inputs& x) { return x[0] * x[1]; }, {random(a, 1), random(b, 2)});
    check_op("divide " + where, [](const Inputs& x) { return x[0] / x[1]; }, {random(a, 1), positive(b, 2)});
  }
}

TEST_CASE("binary operations take views of any strides") {
  check_op("transposed", [](const Inputs& x) { return transpose(x[0], 0, 1) * x[1]; },
           {random({4, 3}, 1), random({3, 4}, 2)});
  check_op("sliced", [](const Inputs& x) { return slice(x[0], 1, 1, 3) + x[1]; },
           {random({2, 5}, 1), random({2, 3}, 2)});
  check_op("with itself", [](const Inputs& x) { return x[0] * x[0] + transpose(x[0], 0, 1); }, {random({3, 3}, 1)});
}

TEST_CASE("unary operations") {
  for (const auto& f : unary_functions) {
    const auto numbers = [&](const Shape& shape) { return f.low > 0 ? positive(shape, 3) : random(shape, 3); };
    for (const Shape& shape : {Shape{7}, Shape{3, 17}, Shape{2, 3, 4}})
      check_op(f.name, [&](const Inputs& x) { return apply_unary(f.op, x[0]); }, {numbers(shape)});
    check_op(std::string(f.name) + " of a view",
             [&](const Inputs& x) { return apply_unary(f.op, transpose(x[0], 0, 1)); }, {numbers({3, 5})});
  }
}

TEST_CASE("exact and tanh GELU are two functions") {
  // x Phi(x) and its approximation at 1.5, from the definitions.
  const double x = 1.5, pi = 3.141592653589793;
  const double exact = 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  const double approximate = 0.5 * x * (1 + std::tanh(std::sqrt(2 / pi) * (x + 0.044715 * x * x * x)));
  const Tensor t = Tensor::full({1}, x, DType::f64);
  CHECK(gelu(t).item() == doctest::Approx(exact).epsilon(1e-14));
  CHECK(gelu_tanh(t).item() == doctest::Approx(approximate).epsilon(1e-14));
  CHECK(std::abs(exact - approximate) > 1e-5);
}

TEST_CASE("scale, add_scalar and cast") {
  check_op("scale", [](const Inputs& x) { return x[0] * -2.5; }, {random({3, 4}, 1)});
  check_op("add_scalar", [](const Inputs& x) { return x[0] + 0.25; }, {random({3, 4}, 1)});
  Tensor x = random({5}, 1, DType::f32);
  require_grad(x);
  backward(sum(cast_to(cast_to(x, DType::f64), DType::f32)));
  CHECK(grad(x).dtype() == DType::f32);
  for (const float g : grad(x).span<float>()) CHECK(g == 1.0F);
}

TEST_CASE("shape operations") {
  check_op("reshape", [](const Inputs& x) { return reshape(x[0], {6, -1}); }, {random({2, 3, 4}, 1)});
  check_op("reshape of a view",
           [](const Inputs& x) {
             return reshape(transpose(x[0], 0, 2), {8, 3});
           },
           {random({2, 3, 4}, 1)});
  check_op("transpose", [](const Inputs& x) { return transpose(x[0], -1, 0); }, {random({2, 3, 4}, 1)});
  check_op("slice", [](const Inputs& x) { return slice(x[0], 1, 1, 2); }, {random({2, 4, 3}, 1)});
  check_op("select", [](const Inputs& x) { return select(x[0], -2, 2); }, {random({2, 4, 3}, 1)});
  check_op("expand", [](const Inputs& x) { return expand(x[0], {4, 2, 3}); }, {random({2, 1}, 1)});
  for (int dim = 0; dim < 3; ++dim) {
    const Shape middle = Shape{2, 3, 4}.with(dim, 5);
    check_op("concat",
             [dim](const Inputs& x) {
               return concat({x[0], x[1], x[2]}, dim);
             },
             {random({2, 3, 4}, 1), random(middle, 2), random({2, 3, 4}, 3)});
  }
  CHECK_THROWS_WITH_AS(reshape(random({2, 3}, 1), {4, 2}), doctest::Contains("do not fill [4, 2]"), Error);
  CHECK_THROWS_WITH_AS(slice(random({2, 3}, 1), 1, 2, 2), doctest::Contains("outside dim 1 of [2, 3]"), Error);
}

TEST_CASE("reductions and softmax") {
  for (int dim = -1; dim < 3; ++dim) {
    check_op("sum", [dim](const Inputs& x) { return sum(x[0], dim); }, {random({2, 3, 4}, 1)});
    check_op("mean", [dim](const Inputs& x) { return mean(x[0], dim, true); }, {random({2, 3, 4}, 1)});
    check_gradients("max", [dim](const Inputs& x) { return max(x[0], dim); }, {random({2, 3, 4}, 1)});
  }
  check_op("sum of all", [](const Inputs& x) { return sum(x[0]); }, {random({3, 5}, 1)});
  check_op("mean of all", [](const Inputs& x) { return mean(x[0]); }, {random({3, 5}, 1)});
  check_op("sum of a view", [](const Inputs& x) { return sum(transpose(x[0], 0, 1), 0); }, {random({3, 5}, 1)});
  check_op("softmax", [](const Inputs& x) { return softmax(x[0]); }, {random({2, 3, 7}, 1)});
  check_op("softmax of a view", [](const Inputs& x) { return softmax(transpose(x[0], 0, 1)); }, {random({5, 3}, 1)});
}

TEST_CASE("a mean of 16 bits is rounded once, and its sum may be beyond their range") {
  const auto last = [](const Tensor& x) { return cast(x, DType::f64).span<double>().back(); };
  CHECK(last(mean(Tensor::full({1000}, 300, DType::f16))) == 300);
  CHECK(last(mean(Tensor::full({3, 1000}, 300, DType::f16), 1)) == 300);
  CHECK(last(adaptive_avg_pool2d(Tensor::full({1, 3, 20, 20}, 200, DType::f16))) == 200);
  CHECK(last(adaptive_avg_pool2d(Tensor::full({1, 1, 40, 40}, 200, DType::f16), 2)) == 200);
  CHECK(last(avg_pool2d(Tensor::full({1, 1, 20, 20}, 200, DType::f16), {.kernel = 20})) == 200);
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    const Tensor x = random({333}, seed, DType::bf16);
    const Tensor exact = mean(cast(x, DType::f64));
    CHECK(last(mean(x)) == last(cast(cast(exact, DType::f32), DType::bf16)));
  }
}

TEST_CASE("max shares the gradient between ties") {
  Tensor x = Tensor::full({1, 4}, 2.0, DType::f64);
  require_grad(x);
  backward(sum(max(x, 1)));
  for (const double g : grad(x).span<double>()) CHECK(g == 0.25);
}

TEST_CASE("norms") {
  for (const Shape& shape : {Shape{5, 8}, Shape{2, 3, 17}, Shape{33}}) {
    const Shape width = {shape[-1]};
    check_op("layer_norm", [](const Inputs& x) { return layer_norm(x[0], x[1], x[2]); },
             {random(shape, 1), random(width, 2), random(width, 3)});
    check_op("layer_norm without bias", [](const Inputs& x) { return layer_norm(x[0], x[1], {}); },
             {random(shape, 1), random(width, 2)});
    check_op("rms_norm", [](const Inputs& x) { return rms_norm(x[0], x[1]); }, {random(shape, 1), random(width, 2)});
  }
}

TEST_CASE("rotary positions") {
  const std::vector<std::int32_t> numbers = {3, 0, 11};
  const Tensor positions = Tensor::from(std::span(numbers), {3});
  check_op("rope", [&](const Inputs& x) { return rope(x[0], positions, 100); }, {random({2, 3, 2, 6}, 1)});
  check_op("rope of a view", [&](const Inputs& x) { return rope(transpose(x[0], 1, 2), positions); },
           {random({1, 2, 3, 4}, 1)});
  const Tensor each = view::reshape(
      Tensor::from(std::span<const std::int32_t>(std::vector<std::int32_t>{3, 0, 11, 1, 7, 2}), {6}), {2, 3});
  const Tensor frequencies = random({3}, 3, DType::f64, uniform(0.1, 1));
  for (const bool interleaved : {false, true})
    check_op(
        "rope of pairs, frequencies and positions of each sequence",
        [&](const Inputs& x) { return rope(x[0], each, {.frequencies = frequencies, .interleaved = interleaved}); },
        {random({2, 3, 2, 6}, 1)});
  CHECK_THROWS_WITH_AS(rope(random({2, 3, 2, 4}, 1), positions, {.frequencies = frequencies}),
                       doctest::Contains("needs frequencies [2] f64, got [3] f64"), Error);
  CHECK_THROWS_WITH_AS(rope(random({1, 3, 2, 5}, 1), positions), doctest::Contains("with an even Dh"), Error);
  CHECK_THROWS_WITH_AS(rope(random({1, 4, 2, 6}, 1), positions), doctest::Contains("needs positions [4] or [1, 4] i32"),
                       Error);
}

TEST_CASE("rotary positions: a score depends on the distance of two tokens only") {
  const Tensor q = random({1, 1, 1, 16}, 1), k = random({1, 1, 1, 16}, 2);
  const auto at = [](const Tensor& x, std::int32_t position) {
    const std::vector<std::int32_t> positions = {position};
    return rope(x, Tensor::from(std::span(positions), {1}));
  };
  const auto score = [&](std::int32_t at_q, std::int32_t at_k) { return sum(at(q, at_q) * at(k, at_k)).item(); };
  CHECK(score(7, 3) == doctest::Approx(score(1004, 1000)).epsilon(1e-10));
  CHECK(std::abs(score(7, 3) - score(8, 3)) > 1e-3);
  CHECK(score(5, 5) == doctest::Approx(sum(q * k).item()).epsilon(1e-12));
}

TEST_CASE("soft caps") {
  for (const double cap : {0.5, 30.0})
    check_op("softcap", [&](const Inputs& x) { return softcap(x[0], cap); }, {random({3, 5}, 1)});
  check_op("softcap of a view", [](const Inputs& x) { return softcap(transpose(x[0], 0, 1), 2); }, {random({3, 5}, 1)});
  const Tensor x = random({4, 3}, 1);
  CHECK(relative_difference(softcap(x, 1.5), tanh(x / 1.5) * 1.5) < 1e-14);
  Tensor large = Tensor::full({2}, 60000, DType::f16);
  require_grad(large);
  backward(softcap(large, 50000), Tensor::full({2}, 1000, DType::f16));  // y^2 is no number of f16
  CHECK(std::isfinite(cast(grad(large), DType::f64).data<double>()[0]));
  CHECK_THROWS_WITH_AS(softcap(x, 0), doctest::Contains("a cap of 0"), Error);
}

TEST_CASE("gated units") {
  for (const Unary gate : {Unary::gelu, Unary::gelu_tanh, Unary::silu, Unary::relu})
    for (const Shape& shape : {Shape{6}, Shape{3, 10}, Shape{2, 3, 4}})
      check_op("gated unit", [&](const Inputs& x) { return gated_unit(x[0], gate); }, {random(shape, 1)});
  check_op("gated unit of a view", [](const Inputs& x) { return gated_unit(transpose(x[0], 0, 1), Unary::gelu); },
           {random({4, 3}, 1)});
  CHECK_THROWS_WITH_AS(gated_unit(random({3}, 1), Unary::gelu), doctest::Contains("expected x [.., 2 F]"), Error);
}

TEST_CASE("swiglu") {
  for (const Shape& shape : {Shape{6}, Shape{3, 10}, Shape{2, 3, 4}})
    check_op("swiglu", [](const Inputs& x) { return swiglu(x[0]); }, {random(shape, 1)});
  Tensor x = random({2, 4}, 1);
  require_grad(x);
  backward(sum(swiglu(x)));
  CHECK(relative_difference(x.detach(), random({2, 4}, 1)) == 0);  // the caller's tensor is not overwritten
  CHECK_THROWS_WITH_AS(swiglu(random({2, 5}, 1)), doctest::Contains("expected x [.., 2 F], got [2, 5]"), Error);
}

TEST_CASE("embedding adds the gradients of repeated ids, and skips rows that are elsewhere") {
  const Tensor tokens = random_ids({2, 5}, 1, 0, 7);
  check_op("embedding", [&](const Inputs& x) { return embedding(x[0], tokens); }, {random({7, 3}, 1)});
  check_op("embedding slice", [&](const Inputs& x) { return embedding(x[0], tokens, 3); }, {random({2, 3}, 1)});
}

TEST_CASE("dropout: the mask depends on the global index only, and backward uses the same mask") {
  const Rectangle whole{{4, 6}, {0, 0}};
  check_gradients("dropout", [&](const Inputs& x) { return dropout(x[0], 0.4, 1, 2, whole); }, {random({4, 6}, 1)});
  const Tensor x = Tensor::full({4, 6}, 1.0);
  const Tensor full = dropout(x, 0.4, 1, 2, whole);
  const Tensor part = dropout(contiguous(view::slice(x, 1, 2, 3)), 0.4, 1, 2, {{4, 6}, {0, 2}});
  CHECK(relative_difference(part, view::slice(full, 1, 2, 3)) == 0);
  CHECK(relative_difference(dropout(x, 0.4, 1, 3, whole), full) > 0.1);
  double kept = 0;
  const Tensor many = Tensor::full({100, 1000}, 1.0);
  const Tensor dropped = dropout(many, 0.25, 3, 4, {{100, 1000}, {0, 0}});
  for (const float v : dropped.span<float>()) kept += v != 0 ? 1 : 0;
  CHECK(kept / 1e5 == doctest::Approx(0.75).epsilon(0.01));
}
