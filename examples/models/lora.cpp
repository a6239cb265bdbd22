// LoRA (Hu et al. 2021, "Low-Rank Adaptation of Large Language Models"): a trained network is adapted to another task
// by small matrices beside its frozen weights.
//
//   build/bin/model_lora
//
// New here: freezing; choosing parameters by their names; two trainings one after the other. The base network learns
// sin(3 x0) cos(2 x1), then its adapters learn cos(3 x0) sin(2 x1). Read next: docs/writing_a_model.md, "Training a
// part of a model".
#include "autograd/engine.h"
#include "data/dataset.h"
#include "data/prefetch.h"
#include "examples/models/example.h"
#include "nn/linear.h"
#include "nn/losses.h"
#include "nn/summary.h"
#include "optim/lr_schedule.h"
#include "optim/optimizer.h"
#include "parallel/data_parallel/grad_sync.h"
#include "parallel/pipeline/executor.h"
#include "train/program/program.h"

using namespace trireme;

namespace {

constexpr std::int64_t points = 2048, batch = 128, width = 64, rank = 8;
constexpr int steps = 400;

/// y = W x + b + B A x, with A [rank, in] and B [out, rank]. B begins at 0, so adapters change nothing at first.
struct LoraLinear : nn::Module {
  nn::Linear base, lora_a, lora_b;
  LoraLinear(const nn::Build& b, std::int64_t in, std::int64_t out)
      : Module(b),
        base(b / "base", in, out),
        lora_a(b / "lora_a", in, rank, {.bias = false}),
        lora_b(b / "lora_b", rank, out, {.bias = false, .weight_init = nn::Init::zeros()}) {}
  Tensor forward(const Tensor& x) override { return base(x) + lora_b(lora_a(x)); }  // [B, in] -> [B, out]
};

struct Network : nn::Module {
  LoraLinear in, hidden, out;
  explicit Network(const nn::Build& b)
      : Module(b), in(b / "in", 2, width), hidden(b / "hidden", width, width), out(b / "out", width, 1) {}
  Tensor forward(const Tensor& x) override { return out(tanh(hidden(tanh(in(x))))); }  // [B, 2] -> [B, 1]
};

/// Points of the square [-1, 1]^2 [N, 2], and a function of each [N, 1].
std::pair<Tensor, Tensor> task(bool second, std::uint64_t seed) {
  const Tensor x = 2.0 * Tensor::rand({points, 2}, seed) - 1.0;
  Tensor y = Tensor::empty({points, 1});
  for (std::int64_t i = 0; i < points; ++i) {
    const float u = 3 * x.data<float>()[2 * i], v = 2 * x.data<float>()[2 * i + 1];
    y.data<float>()[i] = second ? std::cos(u) * std::sin(v) : std::sin(u) * std::cos(v);
  }
  return {x, y};
}

/// Trains the parameters of the model that are not frozen.
void fit(Network& model, bool second, Outcome& outcome) {
  const DeviceMesh& mesh = model.build().mesh();
  const auto [x, y] = task(second, 1);
  Loader batches(std::make_shared<Dataset>(Dataset({{"x", x}, {"y", y}}, 2)), own_part(mesh, batch));
  GradSync gradients(model.parameters(), mesh);
  const auto optimizer = optim::make_adamw(model.parameters(), {.weight_decay = 0});
  const optim::LrSchedule schedule{.lr = 3e-3, .min_lr = 0, .decay_end = steps};
  for (int step = 0; step < steps; ++step) {
    const Batch own = batches.next();
    gradients.zero_grad();
    const Tensor loss = nn::mse_loss(model(own["x"]), own["y"], 1.0 / batch);
    backward(loss);
    gradients.finish();
    optimizer->step(schedule.at(step));
    outcome.losses.push_back(pipeline::global_loss(mesh, loss));
  }
}

double error_of(Network& model, bool second) {
  const NoGrad guard;
  const auto [x, y] = task(second, 3);
  return nn::mse_loss(model(x), y, 1.0 / points).item();
}

Outcome train(const std::shared_ptr<const DeviceMesh>& mesh) {
  Network model(nn::Build(mesh, DType::f32, 7));
  const ParameterList adapters = matching(model.parameters(), "*.lora_*"),
                      base = matching(model.parameters(), "*.base.*");
  Outcome outcome;
  set_requires_grad(adapters, false);
  fit(model, false, outcome);
  const double first = error_of(model, false), before = error_of(model, true);

  set_requires_grad(base, false);
  set_requires_grad(adapters, true);
  fit(model, true, outcome);
  outcome.score = error_of(model, true);
  if (mesh->world().size() == 1)
    fmt::print(
        "base: {} parameters, mean square error {:.5f}; on the other task {:.5f}\n"
        "adapters: {} parameters; on the other task {:.5f}\n",
        nn::count_elements(base), first, before, nn::count_elements(adapters), outcome.score);
  return outcome;
}

}  // namespace

int main() {
  return run_program([] {  // a model that always answers 0 has an error of 0.26
    return train_on_one_and_two_ranks(train, {.score = "mean square error with adapters", .at_most = 0.01});
  });
}
