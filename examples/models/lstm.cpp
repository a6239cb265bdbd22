// An LSTM adds two numbers that stand anywhere in a sequence (the adding problem of Hochreiter and Schmidhuber 1997,
// section 5.4): each element is a random number and a mark; the answer is the sum of the two numbers that are marked.
//
//   build/bin/model_lstm
//
// New here: a layer over sequences, of which the last state is used; clipping of gradients; a learning rate that falls.
// Read next: examples/models/gru.cpp.
#include "autograd/engine.h"
#include "core/random.h"
#include "data/prefetch.h"
#include "data/sample_source.h"
#include "examples/models/example.h"
#include "nn/linear.h"
#include "nn/losses.h"
#include "nn/recurrent.h"
#include "optim/lr_schedule.h"
#include "optim/optimizer.h"
#include "parallel/data_parallel/grad_sync.h"
#include "parallel/data_parallel/gradient_norm.h"
#include "parallel/pipeline/executor.h"
#include "train/program/program.h"

using namespace trireme;

namespace {

constexpr std::int64_t length = 10, batch = 64;
constexpr int steps = 500;

struct Sums : SampleSet {
  std::int64_t size() const override { return std::int64_t{1} << 40; }
  Sample get(std::int64_t index) const override {
    const auto stream = static_cast<std::uint64_t>(index);
    Tensor x = Tensor::zeros({length, 2}), y = Tensor::zeros({1});
    float* elements = x.data<float>();  // the number, the mark
    for (std::int64_t t = 0; t < length; ++t)
      elements[2 * t] = random_uniform(1, stream, static_cast<std::uint64_t>(t) + 2);
    for (const std::int64_t half : {0, 1}) {  // one mark in each half
      const std::uint32_t random = random_word(1, stream, static_cast<std::uint64_t>(half));
      const std::int64_t marked = half * length / 2 + random % (length / 2);
      elements[2 * marked + 1] = 1;
      *y.data<float>() += elements[2 * marked];
    }
    return {{"x", x}, {"y", y}};
  }
};

struct Adder : nn::Module {
  nn::Lstm lstm;
  nn::Linear out;
  explicit Adder(const nn::Build& b) : Module(b), lstm(b / "lstm", {.input = 2, .hidden = 32}), out(b / "out", 32, 1) {}
  Tensor forward(const Tensor& x) override {     // [B, T, 2] -> [B, 1]
    return out(select(lstm(x), 1, length - 1));  // the output of the last step [B, 32]
  }
};

Outcome train(const std::shared_ptr<const DeviceMesh>& mesh) {
  const nn::Build build(mesh, DType::f32, 7);
  Adder model(build);
  GradSync gradients(build.parameters(), *mesh);
  const auto optimizer = optim::make_adamw(build.parameters(), {.weight_decay = 0});
  const optim::LrSchedule schedule{.lr = 2e-2, .min_lr = 0, .decay_end = steps};         // a cosine
  const auto sums = std::make_shared<SampleSource>(std::make_shared<Sums>(), 0, false);  // in order
  Loader batches(sums, own_part(*mesh, batch));
  Outcome outcome;
  for (int step = 0; step < steps; ++step) {
    const Batch own = batches.next();
    gradients.zero_grad();
    const Tensor loss = nn::mse_loss(model(own["x"]), own["y"], 1.0 / batch);
    backward(loss);
    gradients.finish();
    optimizer->step(schedule.at(step), clip_factor(gradient_norm(build.parameters(), *mesh), 1.0));
    outcome.losses.push_back(pipeline::global_loss(*mesh, loss));
  }

  const NoGrad guard;
  const Batch unseen = sums->make_batch(steps * batch, 500);
  outcome.score = mean(abs(model(unseen["x"]) - unseen["y"])).item();
  return outcome;
}

}  // namespace

int main() {
  return run_program([] {  // a model that always answers 1 has an error of 0.33
    return train_on_one_and_two_ranks(train, {.score = "mean error of a sum", .at_most = 0.05});
  });
}
