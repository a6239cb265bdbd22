// A GRU learns to continue waves of any frequency and phase: it predicts the next value from all values before. Then
// it is given the beginning of new waves, and continues them from its own predictions.
//
//   build/bin/model_gru
//
// New here: a layer with several results, run(), whose state is carried from one call to the next; generation.
// Read next: examples/tasks/sort.cpp, an encoder-decoder.
#include "autograd/engine.h"
#include "data/dataset.h"
#include "data/prefetch.h"
#include "examples/models/example.h"
#include "nn/linear.h"
#include "nn/losses.h"
#include "nn/recurrent.h"
#include "optim/lr_schedule.h"
#include "optim/optimizer.h"
#include "parallel/data_parallel/grad_sync.h"
#include "parallel/pipeline/executor.h"
#include "train/program/program.h"

using namespace trireme;

namespace {

constexpr std::int64_t length = 40, batch = 32, given = 24;
constexpr int steps = 700;

/// sin(w t + p) for t = 0 .. length -> [N, T + 1, 1], with w and p of its own for each wave.
Tensor waves(std::int64_t count, std::uint64_t seed) {
  const Tensor w = Tensor::rand({count}, seed, 0), p = Tensor::rand({count}, seed, 1);
  Tensor values = Tensor::empty({count, length + 1, 1});
  for (std::int64_t i = 0; i < values.count(); ++i) {
    const std::int64_t wave = i / (length + 1), t = i % (length + 1);
    const float angle = (0.3F + 0.8F * w.data<float>()[wave]) * static_cast<float>(t) + 6.28F * p.data<float>()[wave];
    values.data<float>()[i] = std::sin(angle);
  }
  return values;
}

/// The next value after each, and the state after the last: a module with several inputs and results.
struct Forecast : nn::ModuleBase {
  nn::Gru gru;
  nn::Linear out;
  explicit Forecast(const nn::Build& b)
      : ModuleBase(b), gru(b / "gru", {.input = 1, .hidden = 32}), out(b / "out", 32, 1) {}
  std::pair<Tensor, Tensor> operator()(const Tensor& x, const Tensor& state = {}) {  // [B, T, 1], [1, B, 32]
    return call([&] {
      const nn::GruOutput result = gru.run(x, state);
      return std::pair(out(result.output), result.state);  // [B, T, 1], [1, B, 32]
    });
  }
};

/// Continues the first `given` values of each wave. Returns the mean error of all values that follow.
double error_of_continuation(Forecast& model, const Tensor& wave) {
  const NoGrad guard;
  auto [next, state] = model(slice(wave, 1, 0, given));  // [N, given, 1]
  Tensor value = slice(next, 1, given - 1, 1);           // [N, 1, 1], the first that was not given
  double error = 0;
  for (std::int64_t t = given; t <= length; ++t) {
    error += mean(abs(value - slice(wave, 1, t, 1))).item();
    std::tie(value, state) = model(value, state);
  }
  return error / (length + 1 - given);
}

Outcome train(const std::shared_ptr<const DeviceMesh>& mesh) {
  const nn::Build build(mesh, DType::f32, 7);
  Forecast model(build);
  GradSync gradients(build.parameters(), *mesh);
  const auto optimizer = optim::make_adamw(build.parameters(), {.weight_decay = 0});
  const optim::LrSchedule schedule{.lr = 2e-2, .min_lr = 0, .decay_end = steps};
  Loader batches(std::make_shared<Dataset>(Dataset({{"wave", waves(2000, 1)}}, 2)), own_part(*mesh, batch));
  Outcome outcome;
  for (int step = 0; step < steps; ++step) {
    const Tensor wave = batches.next()["wave"];  // [B, T + 1, 1]
    gradients.zero_grad();
    const Tensor predicted = model(slice(wave, 1, 0, length)).first;
    const Tensor loss = nn::mse_loss(predicted, slice(wave, 1, 1, length), 1.0 / (batch * length));
    backward(loss);
    gradients.finish();
    optimizer->step(schedule.at(step));
    outcome.losses.push_back(pipeline::global_loss(*mesh, loss));
  }
  outcome.score = error_of_continuation(model, waves(200, 3));
  return outcome;
}

}  // namespace

int main() {
  return run_program([] {  // a model that always answers 0 has an error of 0.64
    return train_on_one_and_two_ranks(train, {.score = "mean error of continued waves", .at_most = 0.1});
  });
}
