// A residual network (He et al. 2016) that names the shape in an image. Batch norm takes mean and variance over the
// images of both ranks, so the losses are those of one rank.
//
//   build/bin/model_resnet
//
// New here: a block as a module of its own; batch norm, which computes otherwise in training than in evaluation. Read
// next: nn/batch_norm.h; examples/tasks/vit.cpp for a model with pipelines, checkpoints and flags.
#include "autograd/engine.h"
#include "core/random.h"
#include "data/prefetch.h"
#include "data/sample_source.h"
#include "examples/models/example.h"
#include "nn/batch_norm.h"
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

constexpr std::int64_t side = 16, classes = 3, batch = 24, steps = 80;

/// conv, norm, relu, conv, norm; plus x, or a 1 x 1 convolution of it where the shape changes.
struct Block : nn::Module {
  nn::Conv2d conv1, conv2;
  nn::BatchNorm2d norm1, norm2;
  std::unique_ptr<nn::Conv2d> shortcut;
  Block(const nn::Build& b, std::int64_t in, std::int64_t out, std::int64_t stride)
      : Module(b),
        conv1(b / "conv1", in, out, 3, {.stride = stride, .padding = 1, .bias = false}),
        conv2(b / "conv2", out, out, 3, {.padding = 1, .bias = false}),
        norm1(b / "norm1", out),
        norm2(b / "norm2", out) {
    if (in != out || stride != 1)
      shortcut = std::make_unique<nn::Conv2d>(b / "shortcut", in, out, 1,
                                              nn::Conv2dLayerOptions{.stride = stride, .bias = false});
  }
  Tensor forward(const Tensor& x) override {  // [N, in, H, W] -> [N, out, H / stride, W / stride]
    const Tensor h = norm2(conv2(relu(norm1(conv1(x)))));
    return relu(h + (shortcut ? (*shortcut)(x) : x));
  }
};

struct ResNet : nn::Module {
  nn::Conv2d stem;
  nn::BatchNorm2d norm;
  nn::MaxPool2d pool;
  Block block1, block2;
  nn::Linear out;
  explicit ResNet(const nn::Build& b)
      : Module(b),
        stem(b / "stem", 1, 8, 3, {.padding = 1, .bias = false}),
        norm(b / "norm", 8),
        pool(b / "pool", {.kernel = 3, .stride = 2, .padding = 1}),
        block1(b / "block1", 8, 8, 1),
        block2(b / "block2", 8, 16, 2),
        out(b / "out", 16, classes) {}
  Tensor forward(const Tensor& images) override {                     // [N, 1, 16, 16] -> [N, classes]
    const Tensor h = block2(block1(pool(relu(norm(stem(images))))));  // [N, 16, 4, 4]
    return out(mean(h, {2, 3}));
  }
};

/// Images [1, 16, 16] with a disc, a square or a cross, anywhere, with noise; and which.
struct Shapes : SampleSet {
  std::int64_t size() const override { return std::int64_t{1} << 40; }
  Sample get(std::int64_t index) const override {
    const auto stream = static_cast<std::uint64_t>(index);
    const std::uint32_t kind = random_word(1, stream, 0) % classes;
    const double x0 = 5 + 6 * random_uniform(1, stream, 1), y0 = 5 + 6 * random_uniform(1, stream, 2);
    Tensor image = Tensor::empty({1, side, side});
    for (std::int64_t i = 0; i < side * side; ++i) {
      const std::int64_t row = i / side, column = i % side;
      const double x = std::abs(static_cast<double>(column) - x0), y = std::abs(static_cast<double>(row) - y0);
      const bool inside[classes] = {std::hypot(x, y) < 4, std::max(x, y) < 3.5,
                                    std::min(x, y) < 1 && std::max(x, y) < 4};
      const double noise = 0.2 * random_normal(1, stream, static_cast<std::uint64_t>(i) + 4);
      image.data<float>()[i] = static_cast<float>((inside[kind] ? 1 : 0) + noise);
    }
    return {{"image", image}, {"label", Tensor::full({}, kind, DType::i32)}};
  }
};

Outcome train(const std::shared_ptr<const DeviceMesh>& mesh) {
  const nn::Build build(mesh, DType::f32, 7);
  ResNet model(build);
  GradSync gradients(build.parameters(), *mesh);
  const auto optimizer = optim::make_adamw(build.parameters(), {.weight_decay = 0});
  const auto images = std::make_shared<SampleSource>(std::make_shared<Shapes>(), 0, false);  // in order
  Loader batches(images, own_part(*mesh, batch));
  Outcome outcome;
  for (std::int64_t step = 0; step < steps; ++step) {
    const Batch own = batches.next();
    gradients.zero_grad();
    const Tensor loss = nn::cross_entropy(model(own["image"]), own["label"], {.scale = 1.0 / batch});
    backward(loss);
    gradients.finish();
    optimizer->step(3e-3);
    outcome.losses.push_back(pipeline::global_loss(*mesh, loss));
  }

  model.eval();  // batch norm now uses its running statistics
  const NoGrad guard;
  const Batch unseen = images->make_batch(steps * batch, 300);
  outcome.score = mean(equal(argmax(model(unseen["image"]), 1), unseen["label"])).item();
  return outcome;
}

}  // namespace

int main() {
  return run_program([] {
    return train_on_one_and_two_ranks(train, {.score = "accuracy on new images", .at_least = 0.85, .equal_steps = 20});
  });
}
