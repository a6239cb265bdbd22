// Losses against PyTorch (tests/golden/make_losses.py), in f64 and f32, also of strided tensors; gradients in all
// dtypes; what is refused; and a sum over ranks.
#include "nn/losses.h"

#include "nn/cross_entropy.h"
#include "tests/support/errors.h"
#include "tests/support/golden.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;

namespace losses_test {
namespace {

/// The same elements, every other one in memory along the last dim.
Tensor strided(const Tensor& x) {
  const Tensor room = Tensor::empty(x.shape().with(-1, 2 * x.size(-1)), x.dtype());
  Shape strides = room.strides();
  strides[-1] = 2;
  Tensor view = room.as_strided(x.shape(), strides, 0);
  copy(x, view);
  return view;
}

using Loss = std::function<Tensor(const Tensor& x, const Tensor& target)>;

/// Value and gradients of a case, from dense and from strided tensors.
void check_case(const GoldenFile& file, const std::string& name, DType dtype, const Loss& loss) {
  for (const bool dense : {true, false}) {
    Tensor x = file.read(name + ".x", dtype), target = file.read(name + ".target", dtype);
    if (!dense) x = strided(x), target = strided(target);
    require_grad(x);
    const bool both = file.has(name + ".dtarget");
    if (both) require_grad(target);
    const Tensor value = loss(x, target);
    CHECK(value.shape() == Shape{});
    check_golden(file, name + ".loss", view::reshape(value.detach(), {1}));
    backward(value);
    check_golden(file, name + ".dx", grad(x));
    if (both) check_golden(file, name + ".dtarget", grad(target));
  }
}

}  // namespace

TEST_CASE("losses of two tensors are PyTorch's, with the gradients of both") {
  const GoldenFile file("losses");
  constexpr double scale = 1.0 / 15;
  for (const DType dtype : {DType::f64, DType::f32}) {
    const auto check = [&](const std::string& name, const Loss& loss) { check_case(file, name, dtype, loss); };
    check("mse", [](const Tensor& x, const Tensor& t) { return nn::mse_loss(x, t, scale); });
    check("l1", [](const Tensor& x, const Tensor& t) { return nn::l1_loss(x, t, scale); });
    check("huber", [](const Tensor& x, const Tensor& t) { return nn::huber_loss(x, t, scale, 0.75); });
    check("smooth_l1", [](const Tensor& x, const Tensor& t) { return nn::smooth_l1_loss(x, t, scale, 0.75); });
    check("smooth_l1_0", [](const Tensor& x, const Tensor& t) { return nn::smooth_l1_loss(x, t, scale, 0); });
  }
}

TEST_CASE("binary cross-entropy is PyTorch's, also for logits of 800, and with weights") {
  const GoldenFile file("losses");
  constexpr double scale = 1.0 / 20;
  for (const DType dtype : {DType::f64, DType::f32}) {
    check_case(file, "binary", dtype,
               [](const Tensor& x, const Tensor& t) { return nn::binary_cross_entropy_with_logits(x, t, scale); });
    check_case(file, "binary_weighted", dtype, [&](const Tensor& x, const Tensor& t) {
      return nn::binary_cross_entropy_with_logits(x, t, scale,
                                                  {.weight = file.read("binary_weighted.weight", dtype),
                                                   .pos_weight = file.read("binary_weighted.pos_weight", dtype)});
    });
  }
}

TEST_CASE("a binary cross-entropy near 0 keeps its digits") {
  const Tensor x = Tensor::full({1}, 30, DType::f64), target = Tensor::full({1}, 1, DType::f64);
  const double loss = nn::binary_cross_entropy_with_logits(x, target, 1).item();
  CHECK(loss == doctest::Approx(std::log1p(std::exp(-30.0))).epsilon(1e-14));
}

TEST_CASE("the divergence is PyTorch's, with targets of 0 and with logarithms") {
  const GoldenFile file("losses");
  for (const DType dtype : {DType::f64, DType::f32}) {
    check_case(file, "kl", dtype, [](const Tensor& x, const Tensor& t) { return nn::kl_div(x, t, 0.25); });
    check_case(file, "kl_log", dtype, [](const Tensor& x, const Tensor& t) { return nn::kl_div(x, t, 0.25, true); });
  }
}

TEST_CASE("cross-entropy of classes in dim 1, smoothed and weighted, with ignored targets, is PyTorch's") {
  const GoldenFile file("losses");
  const Tensor labels = file.read("classes.target"), weights = file.read("classes_weighted.weight");
  const double count = nn::sum_of_target_weights(labels), weight = nn::sum_of_target_weights(labels, weights);
  CHECK(count == 22);
  for (const DType dtype : {DType::f64, DType::f32}) {
    for (const bool smooth : {false, true}) {
      const std::string end = smooth ? "_smooth" : "";
      const double smoothing = smooth ? 0.1 : 0;
      check_case(file, "classes" + end, dtype, [&](const Tensor& x, const Tensor& t) {
        return nn::cross_entropy(x, t, {.smoothing = smoothing, .scale = 1 / count, .class_dim = 1});
      });
      check_case(file, "classes_weighted" + end, dtype, [&](const Tensor& x, const Tensor& t) {
        return nn::cross_entropy(
            x, t, {.smoothing = smoothing, .scale = 1 / weight, .class_dim = 1, .class_weights = cast(weights, dtype)});
      });
    }
  }
}

TEST_CASE("gradients of the losses equal central differences, and those of every dtype agree") {
  const auto check = [](const std::string& what, const Function& f) {
    check_op(what, f, {random({3, 5}, 1), random({3, 5}, 2)});
  };
  check("mse_loss", [](const auto& in) { return nn::mse_loss(in[0], in[1], 0.1); });
  check("l1_loss", [](const auto& in) { return nn::l1_loss(in[0], in[1], 0.1); });
  check("huber_loss", [](const auto& in) { return nn::huber_loss(in[0], in[1], 0.1, 0.5); });
  check("smooth_l1_loss", [](const auto& in) { return nn::smooth_l1_loss(in[0], in[1], 0.1, 0.5); });
  check("kl_div", [](const auto& in) { return nn::kl_div(in[0], in[1], 0.1, true); });
  check_op("binary",
           [t = random({3, 5}, 3, DType::f64, uniform(0, 1))](const auto& in) {
             return nn::binary_cross_entropy_with_logits(in[0], cast(t, in[0].dtype()), 0.1);
           },
           {random({3, 5}, 1)});
}

TEST_CASE("the terms of ranks add up to the loss of the whole batch") {
  const Tensor x = random({4, 6}, 1), t = random({4, 6}, 2);
  const double whole = nn::huber_loss(x, t, 1.0 / 24).item();
  run_mesh("dp=2", [&](const MeshPtr& mesh) {
    const std::int64_t first = 2 * mesh->coord(Axis::dp);
    Tensor term = nn::huber_loss(view::slice(x, 0, first, 2), view::slice(t, 0, first, 2), 1.0 / 24);
    term = view::reshape(term, {1});
    mesh->group(Axis::dp).all_reduce(term).wait();
    CHECK(term.item() == doctest::Approx(whole).epsilon(1e-14));
  });
}

TEST_CASE("a NaN in a prediction is a NaN in the loss") {
  Tensor x = random({2, 3}, 1);
  x.data<double>()[4] = std::nan("");
  const Tensor t = random({2, 3}, 2);
  for (const Tensor& loss : {nn::mse_loss(x, t, 1), nn::l1_loss(x, t, 1), nn::huber_loss(x, t, 1),
                             nn::binary_cross_entropy_with_logits(x, t, 1), nn::kl_div(x, t, 1)})
    CHECK(std::isnan(loss.item()));
}

TEST_CASE("shapes that would broadcast, targets with a gradient and wrong weights are refused") {
  const Tensor x = random({4, 1}, 1), labels = Tensor::zeros({4}, DType::i32);
  CHECK(
      says(error_of([&] { nn::mse_loss(x, random({4}, 2), 1); }, ExitCode::internal),
           "[mse_loss] prediction f64 [4, 1] and target f64 [4]; expected one shape and dtype: nothing is broadcast"));
  Tensor target = random({4, 1}, 2);
  require_grad(target);
  CHECK(says(error_of([&] { nn::binary_cross_entropy_with_logits(x, target, 1); }, ExitCode::internal),
             "the target needs a gradient, which this loss does not compute; give target.detach()"));
  CHECK(says(error_of([&] { nn::kl_div(x, target, 1); }, ExitCode::internal), "log_target = true"));
  CHECK(says(error_of(
                 [&] {
                   nn::binary_cross_entropy_with_logits(x, x, 1, {.weight = random({2, 4, 1}, 1)});
                 },
                 ExitCode::internal),
             "a weight [2, 4, 1]; expected one without a gradient that broadcasts to the logits [4, 1]"));
  CHECK(says(error_of([&] { nn::huber_loss(x, x, 1, 0); }, ExitCode::internal), "[huber_loss] delta 0"));
  CHECK(says(error_of(
                 [&] {
                   nn::cross_entropy(random({4, 3}, 1), labels, {.class_weights = random({4}, 1)});
                 },
                 ExitCode::internal),
             "class weights f64 [4]; expected a floating [C] = [3]"));
  CHECK(says(error_of(
                 [&] {
                   nn::cross_entropy(random({4, 3, 2}, 1), labels, {.class_dim = 1});
                 },
                 ExitCode::internal),
             "logits [4, 3, 2] with the classes in dim 1 and targets [4]; expected targets [4, 2]"));
  CHECK(says(error_of(
                 [&] {
                   nn::cross_entropy(random({4, 3}, 1), labels,
                                     {.slice = {.first = 0, .valid = 2, .global = 2}, .class_weights = random({3}, 1)});
                 },
                 ExitCode::internal),
             "class weights for a vocabulary of 2 tokens that is padded or split over ranks"));
}

}  // namespace losses_test
