// A multi-layer perceptron says which arm of a spiral a point lies on. Its layers are a Sequential, with dropout.
//
//   build/bin/model_mlp
//
// New here: a Sequential; a loss over classes; dropout, whose mask is a function of the sample's number, so that it is
// the same on any number of ranks; evaluation. Read next: examples/models/convnet.cpp.
#include "autograd/engine.h"
#include "data/dataset.h"
#include "data/prefetch.h"
#include "examples/models/example.h"
#include "nn/containers.h"
#include "nn/cross_entropy.h"
#include "nn/linear.h"
#include "nn/summary.h"
#include "optim/optimizer.h"
#include "parallel/data_parallel/grad_sync.h"
#include "parallel/pipeline/executor.h"
#include "train/program/program.h"

using namespace trireme;

namespace {

constexpr std::int64_t arms = 3, batch = 60;
constexpr int steps = 300;

/// Points on the arms of a spiral [N, 2], with noise, and the arm of each [N].
std::pair<Tensor, Tensor> spiral(std::int64_t points, std::uint64_t seed) {
  const Tensor radius = Tensor::rand({points}, seed, 0), noise = Tensor::randn({points}, seed, 1);
  Tensor xy = Tensor::empty({points, 2}), arm = Tensor::empty({points}, DType::i32);
  for (std::int64_t i = 0; i < points; ++i) {
    const float r = radius.data<float>()[i];
    const float angle = 2.1F * static_cast<float>(i % arms) + 5 * r + 0.15F * noise.data<float>()[i];
    xy.data<float>()[2 * i] = r * std::cos(angle);
    xy.data<float>()[2 * i + 1] = r * std::sin(angle);
    arm.data<std::int32_t>()[i] = static_cast<std::int32_t>(i % arms);
  }
  return {xy, arm};
}

struct Classifier : nn::Module {
  nn::Sequential layers;
  explicit Classifier(const nn::Build& b) : Module(b), layers(b / "layers") {
    layers.add<nn::Linear>(2, 64);
    layers.add(relu);
    layers.add<nn::Linear>(64, 64);
    layers.add(relu);
    layers.add<nn::Dropout>(0.1);
    layers.add<nn::Linear>(64, arms);
  }
  Tensor forward(const Tensor& x) override { return layers(x); }  // [B, 2] -> logits [B, arms]
};

Outcome train(const std::shared_ptr<const DeviceMesh>& mesh) {
  const nn::Build build(mesh, DType::f32, 7);
  Classifier model(build);
  if (mesh->world().size() == 1) fmt::print("{}\n", model);  // layers, shapes and numbers of parameters
  const auto [points, arm_of_point] = spiral(3000, 1);
  Loader batches(std::make_shared<Dataset>(Dataset({{"x", points}, {"y", arm_of_point}}, 3)), own_part(*mesh, batch));
  GradSync gradients(build.parameters(), *mesh);
  const auto optimizer = optim::make_adamw(build.parameters(), {.weight_decay = 0.01});
  Outcome outcome;
  for (int step = 0; step < steps; ++step) {
    const Batch own = batches.next();
    build.run_state()->first_sample = own.sample_ids.front();  // for dropout
    gradients.zero_grad();
    const Tensor loss = nn::cross_entropy(model(own["x"]), own["y"], {.scale = 1.0 / batch});
    backward(loss);
    gradients.finish();
    optimizer->step(5e-3);
    outcome.losses.push_back(pipeline::global_loss(*mesh, loss));
  }

  model.eval();        // no dropout
  const NoGrad guard;  // nothing is recorded for a backward
  const auto [new_points, new_arm] = spiral(600, 2);
  outcome.score = mean(equal(argmax(model(new_points), 1), new_arm)).item();
  return outcome;
}

}  // namespace

int main() {
  return run_program(
      [] { return train_on_one_and_two_ranks(train, {.score = "accuracy on new points", .at_least = 0.95}); });
}
