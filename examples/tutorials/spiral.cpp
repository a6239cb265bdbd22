// Tutorial 2: a small network, trained. Two spirals wind around each other; a perceptron with two hidden layers learns
// which point belongs to which spiral.
//
//   build/bin/tutorial_spiral
//
// Read next: examples/tutorials/all_reduce.cpp; nn/linear.h for what Linear does on more than one rank.
#include <fmt/core.h>

#include <cmath>

#include "autograd/engine.h"
#include "core/random.h"
#include "nn/cross_entropy.h"
#include "nn/mlp.h"
#include "optim/optimizer.h"
#include "train/program/program.h"

using namespace trireme;

namespace {

constexpr std::int64_t points = 400;

/// Points on two spirals [N, 2], and the spiral of each point [N].
std::pair<Tensor, Tensor> spirals() {
  Tensor xy = Tensor::empty({points, 2}), labels = Tensor::empty({points}, DType::i32);
  for (std::int64_t i = 0; i < points; ++i) {
    const double turn = 0.5 + 2.5 * static_cast<double>(i) / points;
    const double angle = 3.141592653589793 * (turn + static_cast<double>(i % 2));
    const double noise = 0.05 * random_normal(1, 2, static_cast<std::uint64_t>(i));
    xy.data<float>()[2 * i] = static_cast<float>(turn * std::cos(angle) + noise);
    xy.data<float>()[2 * i + 1] = static_cast<float>(turn * std::sin(angle) + noise);
    labels.data<std::int32_t>()[i] = static_cast<std::int32_t>(i % 2);
  }
  return {xy, labels};
}

/// A model is a struct of layers. Each layer registers its parameters under its name, in the Build that it is given.
struct Classifier : nn::Module {
  nn::Linear in, hidden, out;
  explicit Classifier(const nn::Build& b)
      : Module(b),
        in(b / "in", 2, {64}, nn::Split::none, {.init_std = 1.0}),
        hidden(b / "hidden", 64, {64}, nn::Split::none, {.init_std = 0.18}),
        out(b / "out", 64, {2}, nn::Split::none, {.init_std = 0.1}) {}
  Tensor forward(const Tensor& x) override { return out(tanh(hidden(tanh(in(x))))); }  // [N, 2] -> [N, 2]
};

double accuracy(const Tensor& logits, const Tensor& labels) {
  int right = 0;
  for (std::int64_t i = 0; i < points; ++i) {
    const float* row = logits.data<float>() + 2 * i;
    right += (row[1] > row[0] ? 1 : 0) == labels.data<std::int32_t>()[i] ? 1 : 0;
  }
  return right / static_cast<double>(points);
}

int tutorial() {
  const auto [xy, labels] = spirals();
  const auto mesh = std::make_shared<const DeviceMesh>(self_group(), MeshShape{});  // one rank
  const nn::Build build(mesh, DType::f32, 7);
  Classifier model(build);
  const auto optimizer = optim::make_adamw(build.parameters(), {.weight_decay = 0});

  for (const ParameterPtr& p : build.parameters()) p->grad() = Tensor::zeros(p->local.shape());
  double reached = 0;
  for (int step = 0; step <= 300; ++step) {
    for (const ParameterPtr& p : build.parameters()) kernels(Device::cpu).fill(p->grad(), 0);
    const Tensor logits = model(xy);                                                 // [N, 2]
    const Tensor loss = nn::cross_entropy(logits, labels, {.scale = 1.0 / points});  // []
    reached = accuracy(logits, labels);
    if (step % 60 == 0) fmt::print("step {:3}  loss {:.4f}  accuracy {:.1f}%\n", step, loss.item(), 100 * reached);
    backward(loss);
    optimizer->step(1e-2, 1.0);
  }
  return reached > 0.97 ? 0 : 1;
}

}  // namespace

int main() { return run_program(tutorial); }  // prints any error
