// Linear regression: two weights and a bias are found from noisy measurements of y = 3 x0 - 2 x1 + 0.5.
//
//   build/bin/model_regression
//
// The shortest training loop on ranks. A model is a struct of layers, which register their parameters with the Build
// that they are given. Each rank computes the terms of the loss of its own samples; GradSync sums the gradients of all
// ranks. So the only division is by the samples of the whole batch. Read next: examples/models/mlp.cpp.
#include "autograd/engine.h"
#include "data/dataset.h"
#include "data/prefetch.h"
#include "examples/models/example.h"
#include "nn/linear.h"
#include "nn/losses.h"
#include "optim/optimizer.h"
#include "parallel/data_parallel/grad_sync.h"
#include "parallel/pipeline/executor.h"
#include "train/program/program.h"

using namespace trireme;

namespace {

constexpr std::int64_t measurements = 1000, batch = 50;
constexpr int steps = 100;

struct Regression : nn::Module {
  nn::Linear line;
  explicit Regression(const nn::Build& b) : Module(b), line(b / "line", 2, 1) {}
  Tensor forward(const Tensor& x) override { return line(x); }  // [B, 2] -> [B, 1]
};

std::shared_ptr<Dataset> measure() {
  const Tensor x = Tensor::randn({measurements, 2}, 1, 0);                           // [N, 2]
  const Tensor noise = 0.1 * Tensor::randn({measurements, 1}, 1, 1);                 // [N, 1]
  const Tensor y = 3.0 * slice(x, 1, 0, 1) - 2.0 * slice(x, 1, 1, 1) + 0.5 + noise;  // [N, 1]
  return std::make_shared<Dataset>(Dataset({{"x", x}, {"y", y}}, 2));
}

Outcome train(const std::shared_ptr<const DeviceMesh>& mesh) {
  const nn::Build build(mesh, DType::f32, 7);  // the dtype of the parameters, the seed of their initial values
  Regression model(build);
  GradSync gradients(build.parameters(), *mesh);
  const auto optimizer = optim::make_sgd(build.parameters(), {});
  Loader batches(measure(), own_part(*mesh, batch));
  Outcome outcome;
  for (int step = 0; step < steps; ++step) {
    const Batch own = batches.next();  // this rank's samples
    gradients.zero_grad();
    const Tensor loss = nn::mse_loss(model(own["x"]), own["y"], 1.0 / batch);  // their terms of the mean
    backward(loss);
    gradients.finish();    // sums over ranks
    optimizer->step(0.1);  // the learning rate
    outcome.losses.push_back(pipeline::global_loss(*mesh, loss));
  }

  const Tensor weight = model.line.weight().detach(), bias = model.line.bias().detach();  // [1, 2], [1]
  if (mesh->world().size() == 1) fmt::print("weight {}, bias {}\n", weight, bias);
  outcome.score = max(abs(concat({flatten(weight), bias}, 0) - Tensor::from({3, -2, 0.5}))).item();
  return outcome;
}

}  // namespace

int main() {
  return run_program(
      [] { return train_on_one_and_two_ranks(train, {.score = "largest error of a coefficient", .at_most = 0.02}); });
}
