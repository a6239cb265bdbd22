// Cross-entropy on one rank: backward against central differences, and what is refused. Split vocabularies are in
// vocab_test.cpp.
#include "nn/cross_entropy.h"

#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;

namespace cross_entropy_test {
namespace {

Tensor targets(std::initializer_list<std::int32_t> values) {
  return Tensor::from(std::span(values.begin(), values.size()), {static_cast<std::int64_t>(values.size())});
}

}  // namespace

TEST_CASE("a class that is masked by -infinity costs nothing, unless it is the target") {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    Tensor logits = Tensor::full({1, 3}, -INFINITY, DType::f64);
    logits.data<double>()[1] = 0, logits.data<double>()[2] = 1;
    const auto loss = [&](const Tensor& x, std::int32_t target) {
      return nn::cross_entropy(cast(x, dtype), targets({target}), {}).item();
    };
    CHECK(loss(logits, 1) == doctest::Approx(1.3132617).epsilon(1e-6));
    CHECK(loss(logits, 0) == INFINITY);
    Tensor huge = Tensor::full({1, 100}, -3e38, DType::f64);  // their sum is beyond f32
    huge.data<double>()[1] = 0;
    CHECK(loss(huge, 1) == 0);
  }
}

TEST_CASE("the gradient of cross-entropy equals central differences") {
  for (const double smoothing : {0.0, 0.1}) {
    const auto loss = [&](const VocabSlice& slice) {
      return [=](const std::vector<Tensor>& in) {
        return nn::cross_entropy(in[0], targets({2, -1, 0, 4}),
                                 {.slice = slice, .smoothing = smoothing, .scale = 0.25});
      };
    };
    check_op("cross_entropy", loss({}), {random({4, 7}, 1)});
    check_op("cross_entropy, two columns of padding", loss({.first = 0, .valid = 5, .global = 5}), {random({4, 7}, 2)});
    check_op("cross_entropy, rows in two dims", loss({}), {random({2, 2, 7}, 3)});
  }
}

TEST_CASE("ignored targets and padded columns get no gradient, and a batch without targets no loss") {
  Tensor logits = random({3, 6}, 1);
  require_grad(logits);
  backward(nn::cross_entropy(logits, targets({1, -1, 3}),
                             {.slice = {.first = 0, .valid = 4, .global = 4}, .smoothing = 0.1}));
  const Tensor g = grad(logits);
  for (std::int64_t row = 0; row < 3; ++row) {
    double sum = 0;
    for (std::int64_t v = 0; v < 6; ++v) {
      const double value = g.data<double>()[row * 6 + v];
      sum += value;
      if (row == 1 || v >= 4) CHECK(value == 0);
    }
    CHECK(std::abs(sum) < 1e-15);  // predicted and target probabilities both sum to 1
  }
  const Tensor loss = nn::cross_entropy(logits, targets({-1, -1, -1}), {.smoothing = 0.1});
  CHECK(loss.item() == 0);
  backward(loss);
  CHECK(same_bits(grad(logits), g));
}

TEST_CASE("the gradient may take the logits' memory only when nobody else has them") {
  Tensor x = random({2, 5}, 1);
  require_grad(x);
  const Tensor kept = x * 2.0, before = clone(kept);
  backward(nn::cross_entropy(kept, targets({1, 2}), {}));
  CHECK(same_bits(kept.detach(), before));
  const Tensor first = clone(grad(x));
  leaf_of(x)->grad() = Tensor();
  backward(nn::cross_entropy(x * 2.0, targets({1, 2}), {}));
  CHECK(same_bits(grad(x), first));
}

TEST_CASE("the gradient made in forward is that of backward, also if the loss is multiplied") {
  for (const DType dtype : {DType::bf16, DType::f32, DType::f64}) {
    for (const double factor : {1.0, 0.25}) {  // a power of two: multiplying the rounded gradient is exact
      Tensor x = random({5, 9}, 1, dtype);
      require_grad(x);
      const auto gradient = [&](Tensor logits, const Tensor& kept) {
        const Tensor before = kept.defined() ? clone(kept.detach()) : Tensor();
        const Tensor loss =
            nn::cross_entropy(std::move(logits), targets({1, 2, -1, 8, 0}), {.smoothing = 0.1, .scale = 0.5});
        backward(factor == 1 ? loss : loss * factor);
        if (kept.defined()) CHECK(same_bits(kept.detach(), before));
        const Tensor result = clone(grad(x));
        leaf_of(x)->grad() = Tensor();
        return result;
      };
      Tensor kept = x * 2.0;
      const Tensor in_backward = gradient(kept, kept);
      CHECK(same_bits(gradient(x * 2.0, {}), in_backward));
    }
  }
}

TEST_CASE("without a gradient, forward leaves a temporary's logits to nobody and gives the same loss") {
  const Tensor x = random({3, 6}, 1);
  const Tensor kept = x * 2.0;
  const double loss = nn::cross_entropy(kept, targets({1, -1, 3}), {}).item();
  CHECK(nn::cross_entropy(x * 2.0, targets({1, -1, 3}), {}).item() == loss);
}

TEST_CASE("targets of another count or type are refused") {
  const Tensor logits = random({4, 7}, 1);
  CHECK_THROWS_WITH_AS(
      nn::cross_entropy(logits, targets({1, 2, 3}), {}),
      doctest::Contains(
          "one target per row of logits [4, 7]: 4 numbers of classes, which are their last dim; got targets [3]"),
      Error);
  CHECK_THROWS_WITH_AS(nn::cross_entropy(logits, random({4}, 1), {}),
                       doctest::Contains("expected each target in i32, got f64"), Error);
}

}  // namespace cross_entropy_test
