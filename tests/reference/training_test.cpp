// The examples of the reference: data, training loops, optimizers, meshes, checkpoints.
#include <doctest/doctest.h>
#include <fmt/core.h>

#include "autograd/engine.h"
#include "data/data_loader.h"
#include "data/dataset.h"
#include "data/prefetch.h"
#include "data/sample_source.h"
#include "models/gpt.h"
#include "models/model.h"
#include "nn/losses.h"
#include "nn/mlp.h"
#include "optim/lr_schedule.h"
#include "optim/muon.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/checkpoint/saver.h"
#include "parallel/data_parallel/gradient_norm.h"
#include "parallel/mesh/redistribute.h"
#include "parallel/zero/zero.h"
#include "tests/support/files.h"
#include "train/gpt/generate.h"
#include "train/step/setup.h"
#include "train/step/trainer.h"

using namespace trireme;

namespace reference_training {

nn::Build one_rank() { return {std::make_shared<const DeviceMesh>(self_group(), MeshShape{}), DType::f32, /*seed=*/7}; }

//! [samples]
/// Samples that your code makes or reads one at a time.
struct Sines : SampleSet {
  std::int64_t size() const override { return 256; }
  Sample get(std::int64_t index) const override {
    const double x = static_cast<double>(index) / 128 - 1;
    return {{"x", Tensor::full({1}, x)}, {"y", Tensor::full({1}, std::sin(3 * x))}};
  }
};
//! [samples]

struct Net : nn::Module {
  nn::Linear in, out;
  explicit Net(const nn::Build& b)
      : Module(b),
        in(b / "in", 1, {64}, nn::Split::out, {.init_std = 2, .hidden = false}),
        out(b / "out", 64, {1}, nn::Split::in, {.init_std = 0.1, .hidden = false}) {}
  Tensor forward(const Tensor& x) override { return out(tanh(in(x))); }  // [B, 1] -> [B, 1]
};

//! [model]
/// A Model has a front, a row of blocks and an end, so that a pipeline can be cut between blocks.
struct Regression : Model {
  std::unique_ptr<nn::Linear> in, out;
  Regression(const nn::Build& b, pipeline::StagePlan plan) : Model(b, std::move(plan)) {
    if (holds_front())
      in = std::make_unique<nn::Linear>(front_unit("in"), 1, Shape{16}, nn::Split::none, nn::LinearOptions{});
    make_blocks([](const nn::Build& block, int) {
      return std::make_unique<nn::Mlp>(block, nn::MlpOptions{.width = 16, .hidden = 32});
    });
    if (holds_end())
      out = std::make_unique<nn::Linear>(end_unit("out"), 16, Shape{1}, nn::Split::none, nn::LinearOptions{});
  }
  Tensor front(const Batch& batch) override { return (*in)(batch["x"]); }  // [B, 1] -> [B, 16]
  Tensor loss(const Tensor& hidden, const Batch& batch, double scale) override {
    return nn::mse_loss((*out)(hidden), batch["y"], scale);
  }
  Shape hidden_shape(std::int64_t samples) const override { return {samples, 16}; }
  std::string architecture() const override { return "regression"; }
  std::string configuration() const override { return "{}"; }
};
//! [model]

TEST_CASE("reference: a training loop") {
  double reached = 1;
  //! [training]
  const auto mesh = std::make_shared<const DeviceMesh>(self_group(), MeshShape{});  // one rank
  const nn::Build build(mesh, DType::f32, /*seed=*/7);
  Net model(build);
  const auto optimizer = optim::make_adamw(build.parameters(), {.weight_decay = 0});
  Loader loader(std::make_shared<SampleSource>(std::make_shared<Sines>(), /*seed=*/1),
                {.global_batch = 32, .micro_batch = 32});
  for (int step = 0; step < 200; ++step) {
    const Batch batch = loader.next();
    nn::zero_grad(model);
    const Tensor loss = nn::mse_loss(model(batch["x"]), batch["y"], 1.0 / 32);
    backward(loss);
    clip_gradients(build.parameters(), *mesh, 1.0);
    optimizer->step(/*lr=*/1e-2, /*gradient_scale=*/1.0);
    reached = loss.item();
  }
  //! [training]
  CHECK(reached < 0.02);
}

TEST_CASE("reference: data") {
  const Tensor x = Tensor::randn({100, 3}, 1), y = Tensor::randn({100, 1}, 2);
  //! [dataset]
  const auto data = std::make_shared<Dataset>(Dataset({{"x", x}, {"y", y}}, /*seed=*/1));  // rows in memory
  Loader loader(data, {.global_batch = 32, .micro_batch = 8, .dp_rank = 0, .dp_size = 2}, /*consumed=*/0, /*depth=*/4,
                /*workers=*/2);
  const Batch batch = loader.next();  // batch["x"] [8, 3]: the first of this rank's two micro-batches of a step
  //! [dataset]
  CHECK(batch["x"].shape() == Shape{8, 3});
}

TEST_CASE("reference: epochs") {
  const Tensor x = Tensor::randn({100, 3}, 1), y = Tensor::randn({100, 1}, 2);
  std::int64_t rows = 0;
  //! [data_loader]
  DataLoader loader({{"x", x}, {"y", y}}, {.batch = 32, .seed = 7});
  for (int epoch = 0; epoch < 2; ++epoch)
    for (const Batch& batch : loader.epoch(epoch)) rows += batch["x"].size(0);
  //! [data_loader]
  CHECK(rows == 200);
}

TEST_CASE("reference: optimizers") {
  const nn::Build b = one_rank();
  Net net(b);
  const ParameterList parameters = b.parameters();
  //! [optimizers]
  const auto adamw = optim::make_adamw(parameters, {.beta2 = 0.95, .weight_decay = 0.1});
  const auto sgd = optim::make_sgd(parameters, {.momentum = 0.9, .nesterov = true});
  const auto lion = optim::make_lion(parameters, {.weight_decay = 1.0});
  const auto muon = optim::make_muon(whole_shards(parameters), b.mesh(), {.lr_ratio = 0.02 / 3e-4});

  for (const ParameterPtr& bias : matching(parameters, "*.bias")) bias->decay = false;
  adamw->set_factors({"lr", "in.*=0.1"}, {"weight decay", ""});  // in.weight and in.bias: a tenth of the rate
  const optim::LrSchedule schedule{.lr = 3e-4, .min_lr = 3e-5, .warmup_steps = 10, .decay_end = 1000};

  nn::zero_grad(net);
  backward(sum(square(net(Tensor::randn({4, 1}, 1)))));
  adamw->step(schedule.at(0), clip_factor(gradient_norm(parameters, b.mesh()), 1.0));
  //! [optimizers]
  CHECK(adamw->steps() == 1);
  CHECK(muon->steps() + lion->steps() + sgd->steps() == 0);
}

TEST_CASE("reference: ranks") {
  //! [ranks]
  run_thread_ranks(4, /*threads_per_rank=*/1, std::chrono::seconds(30), [](const std::shared_ptr<ProcessGroup>& world) {
    const auto mesh = std::make_shared<const DeviceMesh>(world, parse_mesh("dp=2,tp=2", world->size()));
    Tensor x = Tensor::full({3}, mesh->coord(Axis::tp));
    mesh->group(Axis::tp).all_reduce(x).wait();  // 0 + 1 on every rank

    const nn::Build build(mesh, DType::f32, 7);
    Net model(build);                          // its 64 features are split over tp: 32 on each rank
    GradSync sync(build.parameters(), *mesh);  // its gradients are summed over dp
    const auto optimizer = optim::make_adamw(build.parameters(), {});

    const Tensor part = Tensor::randn({8, 1}, 1, mesh->coord(Axis::dp));  // this dp rank's samples
    sync.zero_grad();
    sync.last_microbatch();                                       // sums may start during this backward
    backward(nn::mse_loss(model(part), square(part), 1.0 / 16));  // 16: the samples of all ranks
    sync.finish();
    optimizer->step(1e-3, 1.0);
    CHECK(x.data<const float>()[0] == 1);
  });
  //! [ranks]
}

TEST_CASE("reference: redistribute") {
  //! [redistribute]
  run_thread_ranks(2, 1, std::chrono::seconds(30), [](const std::shared_ptr<ProcessGroup>& world) {
    const DeviceMesh mesh(world, parse_mesh("tp=2", 2));
    const Tensor part = Tensor::full({3, 2}, mesh.coord(Axis::tp));  // S(1): half of the columns of [3, 4]
    const Tensor whole = redistribute(part, mesh, Axis::tp, placement::S(1), placement::I);  // [3, 4] on both
    CHECK(whole.shape() == Shape{3, 4});
  });
  //! [redistribute]
}

TEST_CASE("reference: ZeRO") {
  const nn::Build b = one_rank();
  Net net(b);
  //! [zero]
  Zero zero(b.parameters(), b.units(), b.mesh(), {.stage = 2});  // optimizer state and gradients in shards over dp
  const auto optimizer = optim::make_adamw(zero.shards(), {});
  optimizer->attach(zero);
  zero.zero_grad();
  zero.last_microbatch();
  backward(sum(square(net(Tensor::randn({4, 1}, 1)))));
  zero.finish();
  optimizer->step(1e-3, clip_factor(zero.gradient_norm(), 1.0));
  //! [zero]
  CHECK(optimizer->steps() == 1);
}

TEST_CASE("reference: checkpoints") {
  const testing::TempFolder folder;
  const std::filesystem::path out = folder.path();
  const nn::Build b = one_rank();
  Net net(b);
  const auto optimizer = optim::make_adamw(b.parameters(), {});
  //! [checkpoint]
  const auto held = [&] { return checkpoint::held_tensors(optimizer->weights_and_state(), b.buffers(), b.mesh()); };
  checkpoint::Saver saver(out / "checkpoints", b.mesh(), /*keep=*/3);
  saver.begin(/*step=*/100, held(), {{"note", "any text"}});  // copies; training may go on
  const std::optional<checkpoint::Saved> saved = saver.finish();

  checkpoint::Checkpoint stored(saved->path);  // on any mesh
  stored.read(held(), "it was saved with another optimizer");
  optimizer->set_steps(stored.manifest().step);
  //! [checkpoint]
  CHECK(saved->error.empty());
  CHECK(stored.run("note") == "any text");
  CHECK(optimizer->steps() == 100);
}

TEST_CASE("reference: a GPT") {
  const nn::Build b = one_rank();
  //! [gpt]
  Gpt gpt(b, {.layers = 2, .heads = 2, .width = 16, .context = 8, .vocab = 50});
  const Tensor tokens = Tensor::from({{3, 1, 4, 1, 5, 9, 2, 6}}, DType::i32);
  const Tensor next = Tensor::from({{1, 4, 1, 5, 9, 2, 6, -1}}, DType::i32);  // -1: no target
  const Tensor loss = gpt.loss(tokens, next);                                 // the mean over the 7 targets
  backward(loss);
  const ParameterPtr up = gpt.parameter("blocks.0.mlp.up.weight");  // [64, 16]

  const std::vector<std::int32_t> prompt = {3, 1, 4};
  const std::vector<std::int32_t> text = generate(gpt, prompt, {.length = 5, .temperature = 0.8, .top_k = 10});
  //! [gpt]
  CHECK(loss.item() == doctest::Approx(std::log(50)).epsilon(0.1));
  CHECK(text.size() == 5);
  CHECK(up->local.shape() == Shape{64, 16});
  CHECK(sum(square(up->grad())).item() > 0);
  const Batch batch = gpt.enter(token_batch(tokens, next, {0}));
  CHECK(gpt.loss(gpt.hidden(0, {}, batch), batch, 1.0 / 7).item() == loss.item());
  CHECK_THROWS_WITH_AS(static_cast<void>(gpt.parameter("blocks.0.mlp.up.wieght")),
                       doctest::Contains("the nearest: blocks.0.mlp.up.weight"), Error);
  CHECK_THROWS_WITH_AS(static_cast<void>(gpt.loss(tokens, Tensor::full({1, 8}, -1, DType::i32))),
                       doctest::Contains("all targets [1, 8] are negative"), Error);
  CHECK_THROWS_WITH_AS(static_cast<void>(gpt.loss(tokens, view::slice(next, 1, 0, 4))),
                       doctest::Contains("ids [1, 8] and targets [1, 4]; expected both [B, T]"), Error);
  CHECK_THROWS_WITH_AS(static_cast<void>(gpt.loss(tokens, Tensor::full({1, 8}, 50, DType::i32))),
                       doctest::Contains("[cross_entropy] target 50 at [0, 0] of [1, 8] is out of range"), Error);
}

TEST_CASE("reference: a model and its trainer") {
  double first = 0, last = 0;
  //! [trainer]
  TrainOptions options;  // what the flags of the training programs set
  options.mesh.axes = "dp=2,pp=2";
  options.batch = {.micro_batch = 8, .global_batch = 32};
  resolve(options, 0);
  const auto source = std::make_shared<SampleSource>(std::make_shared<Sines>(), 1);
  run_thread_ranks(4, 1, std::chrono::seconds(30), [&](const std::shared_ptr<ProcessGroup>& world) {
    const auto mesh = std::make_shared<const DeviceMesh>(world, options.mesh.shape);
    Trainer trainer(std::make_unique<Regression>(make_build(options, mesh), options.mesh.stage_plan(/*blocks=*/2)),
                    options);
    Loader loader(source, options.batch_sizes().on_rank(mesh->coord(Axis::dp)));
    for (int step = 0; step < 50; ++step) {
      const auto report = trainer.gradients([&](int) { return loader.next(); }, 1.0 / 32);
      StepNumbers numbers = trainer.numbers(report);  // of the whole batch, the same on every rank
      trainer.update(/*lr=*/1e-2, numbers.norm());
      if (mesh->rank() == 0) (step == 0 ? first : last) = numbers.loss();
    }
  });
  //! [trainer]
  CHECK(last < 0.5 * first);
}

}  // namespace reference_training
