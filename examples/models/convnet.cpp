// A convolutional network says in which of four directions the stripes of an image run.
//
//   build/bin/model_convnet
//
// New here: images [N, C, H, W]; a SampleSet, which draws its samples when they are needed. Read next:
// examples/models/resnet.cpp.
#include <numbers>

#include "autograd/engine.h"
#include "core/random.h"
#include "data/prefetch.h"
#include "data/sample_source.h"
#include "examples/models/example.h"
#include "nn/conv.h"
#include "nn/cross_entropy.h"
#include "nn/linear.h"
#include "nn/pool.h"
#include "optim/optimizer.h"
#include "parallel/data_parallel/grad_sync.h"
#include "parallel/pipeline/executor.h"
#include "train/program/program.h"

using namespace trireme;

namespace {

constexpr std::int64_t side = 16, directions = 4, batch = 32;
constexpr int steps = 100;

/// Sample n is a function of n, so all ranks agree on it.
struct Stripes : SampleSet {
  std::int64_t size() const override { return std::int64_t{1} << 40; }
  Sample get(std::int64_t index) const override {
    const auto stream = static_cast<std::uint64_t>(index);  // of random numbers
    const std::uint32_t direction = random_word(1, stream, 0) % directions;
    const double angle = std::numbers::pi / directions * direction, phase = 6.3 * random_uniform(1, stream, 1);
    Tensor image = Tensor::empty({1, side, side});
    for (std::int64_t i = 0; i < side * side; ++i) {
      const std::int64_t row = i / side, column = i % side;
      const auto x = static_cast<double>(column), y = static_cast<double>(row);
      const double noise = 0.5 * random_normal(1, stream, static_cast<std::uint64_t>(i) + 4);
      image.data<float>()[i] = static_cast<float>(std::sin(x * std::cos(angle) + y * std::sin(angle) + phase) + noise);
    }
    return {{"image", image}, {"label", Tensor::full({}, direction, DType::i32)}};
  }
};

struct ConvNet : nn::Module {
  nn::Conv2d conv1, conv2;
  nn::MaxPool2d pool;
  nn::Linear out;
  explicit ConvNet(const nn::Build& b)
      : Module(b),
        conv1(b / "conv1", 1, 8, 3, {.padding = 1}),
        conv2(b / "conv2", 8, 16, 3, {.padding = 1}),
        pool(b / "pool", {.kernel = 2}),
        out(b / "out", 16 * 4 * 4, directions) {}
  Tensor forward(const Tensor& images) override {  // [N, 1, 16, 16] -> logits [N, directions]
    const Tensor h = pool(relu(conv1(images)));    // [N, 8, 8, 8]
    return out(flatten(pool(relu(conv2(h))), 1));  // [N, 16, 4, 4] -> [N, 256] -> [N, directions]
  }
};

Outcome train(const std::shared_ptr<const DeviceMesh>& mesh) {
  const nn::Build build(mesh, DType::f32, 7);
  ConvNet model(build);
  GradSync gradients(build.parameters(), *mesh);
  const auto optimizer = optim::make_adamw(build.parameters(), {.weight_decay = 0});
  const auto images = std::make_shared<SampleSource>(std::make_shared<Stripes>(), 0, false);  // in order
  Loader batches(images, own_part(*mesh, batch));
  Outcome outcome;
  for (int step = 0; step < steps; ++step) {
    const Batch own = batches.next();
    gradients.zero_grad();
    const Tensor loss = nn::cross_entropy(model(own["image"]), own["label"], {.scale = 1.0 / batch});
    backward(loss);
    gradients.finish();
    optimizer->step(2e-3);
    outcome.losses.push_back(pipeline::global_loss(*mesh, loss));
  }

  const NoGrad guard;
  const Batch unseen = images->make_batch(steps * batch, 500);
  outcome.score = mean(equal(argmax(model(unseen["image"]), 1), unseen["label"])).item();
  return outcome;
}

}  // namespace

int main() {
  return run_program(
      [] { return train_on_one_and_two_ranks(train, {.score = "accuracy on new images", .at_least = 0.97}); });
}
