// A mixture of experts: tokens of four kinds, each to be multiplied by a matrix of its own kind. The router learns to
// send them to different experts. On two ranks each has half of the experts, and tokens travel to them: dp=2,ep=2.
//
//   build/bin/model_mixture_of_experts
//
// New here: nn::Moe, instead of an nn::Mlp; an axis that splits the model itself. Read next: nn/moe.h.
#include "autograd/engine.h"
#include "data/prefetch.h"
#include "data/sample_source.h"
#include "examples/models/example.h"
#include "nn/losses.h"
#include "nn/moe.h"
#include "optim/lr_schedule.h"
#include "optim/optimizer.h"
#include "parallel/data_parallel/grad_sync.h"
#include "parallel/pipeline/executor.h"
#include "train/program/program.h"

using namespace trireme;

namespace {

constexpr std::int64_t kinds = 4, width = 16, length = 16, batch = 16;
constexpr int steps = 400;

/// Tokens x [T, D] of random kinds: x is the center of its kind plus noise, y the noise times the matrix of its kind.
struct Tokens : SampleSet {
  Tensor centers = 2.0 * Tensor::randn({kinds, width}, 1, 0);           // [K, D]
  Tensor matrices = 0.25 * Tensor::randn({kinds, width* width}, 1, 1);  // [K, D D]
  std::int64_t size() const override { return std::int64_t{1} << 40; }
  Sample get(std::int64_t index) const override {
    const auto stream = 2 * static_cast<std::uint64_t>(index);
    const Tensor noise = Tensor::randn({length, 1, width}, 1, stream);  // [T, 1, D]
    const Tensor kind = cast(static_cast<double>(kinds) * Tensor::rand({length}, 1, stream + 1), DType::i32);  // [T]
    const Tensor matrix = reshape(gather_rows(matrices, kind), {length, width, width});  // [T, D, D]
    return {{"x", gather_rows(centers, kind) + squeeze(noise, 1)}, {"y", squeeze(matmul(noise, matrix), 1)}};
  }
};

struct Mixture : nn::Module {
  nn::Moe moe;
  explicit Mixture(const nn::Build& b)
      : Module(b),
        moe(b / "moe", {.expert = {.width = width, .hidden = 32, .init_std = 0.2, .residual_init_std = 0.1},
                        .experts = {.count = 4, .top_k = 1}}) {}
  Tensor forward(const Tensor& x) override { return moe(x); }  // [B, T, D] -> [B, T, D]
};

Outcome train(const std::shared_ptr<const DeviceMesh>& mesh) {
  const nn::Build build(mesh, DType::f32, 7);
  build.run_state()->step_sequences = batch;  // the losses of the router are means over these
  Mixture model(build);
  GradSync gradients(build.parameters(), *mesh);
  const auto optimizer = optim::make_adamw(build.parameters(), {.weight_decay = 0});
  const optim::LrSchedule schedule{.lr = 1e-2, .min_lr = 0, .decay_end = steps};
  const auto tokens = std::make_shared<SampleSource>(std::make_shared<Tokens>(), 0, false);  // in order
  Loader batches(tokens, own_part(*mesh, batch));
  Outcome outcome;
  for (int step = 0; step < steps; ++step) {
    const Batch own = batches.next();
    gradients.zero_grad();
    const Tensor loss = nn::mse_loss(model(own["x"]), own["y"], 1.0 / (batch * length * width));
    backward(loss);
    gradients.finish();
    optimizer->step(schedule.at(step));
    const nn::RoutingReport routing = build.routing().finish(*mesh, false, true);
    if (mesh->world().size() == 1 && step % 100 == 99)
      fmt::print("step {}: the busiest expert has {:.2f} times its share of tokens\n", step, routing.imbalance);
    outcome.losses.push_back(pipeline::global_loss(*mesh, loss));
  }

  const NoGrad guard;
  model.eval();
  const Batch unseen = tokens->make_batch(steps * batch, 64);
  outcome.score = mean(square(model(unseen["x"]) - unseen["y"])).item();
  return outcome;
}

}  // namespace

int main() {
  return run_program([] {  // a model that always answers 0 has an error of 1
    return train_on_one_and_two_ranks(train, {.score = "mean square error on new tokens", .at_most = 0.1}, "dp=2,ep=2");
  });
}
