// Training with frozen parameters: every ZeRO stage and every mesh gives what one rank gives, and frozen weights stay
// as they are, also where a whole pipeline stage is frozen. Checkpoints store them.
#include "data/safetensors.h"
#include "nn/weights.h"
#include "tests/checkpoint/support.h"
#include "tests/zero/training.h"

using namespace trireme;
using namespace trireme::testing;

namespace frozen_test {
namespace {

/// As GptRun, but parameters whose names fit one of the patterns are frozen.
struct FrozenRun {
  FrozenRun(const GptOptions& o, const MeshPtr& mesh, const std::vector<const char*>& patterns)
      : options(o), plan(o.batch_sizes().on_rank(mesh->coord(Axis::dp))), sampler(test_tokens(3000), 8, 7) {
    auto model = make_gpt(o, o.model.config, mesh);
    for (const char* pattern : patterns) set_requires_grad(matching(model->parameters(), pattern, true), false);
    trainer = std::make_unique<Trainer>(std::move(model), o, 4 << 10);
  }

  /// One step; returns the loss before it, and the norm of the gradient.
  std::pair<double, double> step() {
    const auto next = [&](int microbatch) {
      return sampler.make_batch(plan.first_sample(samples, microbatch), options.batch_sizes().micro_batch);
    };
    const double tokens = static_cast<double>(options.batch_sizes().tokens_per_step(8));
    const Tensor loss = trainer->gradients(next, 1.0 / tokens).pipeline.loss;
    const double norm = trainer->gradient_norm();
    trainer->update(3e-3, norm);
    samples += options.batch_sizes().global_batch;
    return {pipeline::global_loss(trainer->model().mesh(), loss), norm};
  }

  GptOptions options;
  BatchPlan plan;
  std::unique_ptr<Trainer> trainer;
  Sampler sampler;
  std::int64_t samples = 0;
};

struct Result {
  std::vector<std::pair<double, double>> steps;
  std::string first, last;  // the weights as files
};

Result trained_on(const ZeroRun& options, const std::vector<const char*>& patterns) {
  const TempFolder folder;
  Result result;
  std::mutex mutex;
  run_mesh(options.mesh, [&](const MeshPtr& mesh) {
    FrozenRun run(options_of(options), mesh, patterns);
    nn::save_weights(run.trainer->model(), folder / "first");
    std::vector<std::pair<double, double>> steps;
    for (int i = 0; i < 3; ++i) steps.push_back(run.step());
    nn::save_weights(run.trainer->model(), folder / "last");
    const std::scoped_lock lock(mutex);
    result.steps = steps;
  });
  result.first = content_of(folder / "first");
  result.last = content_of(folder / "last");
  return result;
}

bool frozen_stay(const Result& result, const std::vector<std::string>& prefixes) {
  const TempFolder folder;
  write_plainly(folder / "first", result.first);
  write_plainly(folder / "last", result.last);
  const SafetensorsFile first(folder / "first"), last(folder / "last");
  for (const std::string& name : first.names()) {
    const bool frozen =
        std::any_of(prefixes.begin(), prefixes.end(), [&](const auto& prefix) { return name.starts_with(prefix); });
    if (same_bits(first.read(name), last.read(name)) == frozen) continue;
    MESSAGE(name);
    return false;
  }
  return true;
}

void check_near(const Result& got, const Result& expected) {
  for (std::size_t i = 0; i < expected.steps.size(); ++i) {
    CHECK(std::abs(got.steps[i].first - expected.steps[i].first) < 2e-5 * expected.steps[i].first);
    CHECK(std::abs(got.steps[i].second - expected.steps[i].second) < 2e-4 * expected.steps[i].second);
  }
}

}  // namespace

TEST_CASE("ZeRO trains the same bits with frozen parameters, in every stage") {
  struct Case {
    std::vector<const char*> frozen;
    std::vector<std::string> prefixes;
    DType dtype = DType::f32;
  };
  const std::vector<Case> cases = {
      {{"blocks.1.*", "blocks.2.mlp.*"}, {"blocks.1.", "blocks.2.mlp."}},
      // The input of the first block is computed from wpe and nothing else that is trained: its gradient is in f32.
      {{"wte.weight"}, {"wte."}, DType::bf16}};
  for (const Case& c : cases) {
    CAPTURE(c.frozen.front());
    const Result expected = trained_on({.mesh = "dp=2", .dtype = c.dtype}, c.frozen);
    CHECK(frozen_stay(expected, c.prefixes));
    for (const std::int64_t stage : {1, 2, 3}) {
      CAPTURE(stage);
      const Result got = trained_on({.mesh = "dp=2", .zero = stage, .dtype = c.dtype}, c.frozen);
      CHECK(got.steps == expected.steps);
      CHECK((got.last == expected.last));
    }
    if (c.dtype != DType::f32) continue;
    const Result hybrid = trained_on({.mesh = "dp=4", .zero = 2, .dp_shard = 2}, c.frozen);
    check_near(hybrid, expected);
  }
}

TEST_CASE("meshes train with frozen parameters as one rank does, also with a whole stage frozen") {
  const std::vector<const char*> patterns = {"wte.*", "wpe*", "blocks.0.*", "blocks.1.*"};
  const Result one = trained_on({.mesh = "dp=1"}, patterns);
  CHECK(frozen_stay(one, {"wte.", "wpe", "blocks.0.", "blocks.1."}));
  const std::vector<ZeroRun> runs = {{.mesh = "dp=2,tp=2", .zero = 3},
                                     {.mesh = "pp=2", .zero = 1, .micro_batches = 2},
                                     {.mesh = "pp=2", .micro_batches = 3, .pipeline = "zero-bubble"},
                                     {.mesh = "dp=2,pp=2", .zero = 2, .pipeline = "interleaved:2"}};
  for (const ZeroRun& run : runs) {
    CAPTURE(run.mesh);
    const Result got = trained_on(run, patterns);
    check_near(got, one);
    CHECK(frozen_stay(got, {"wte.", "wpe", "blocks.0.", "blocks.1."}));
  }
}

TEST_CASE("a checkpoint holds frozen weights, and restores them") {
  run_mesh("dp=2", [&](const MeshPtr& mesh) {
    FrozenRun run(options_of({.mesh = "dp=2", .zero = 3}), mesh, {"blocks.1.*"});
    run.step();
    const auto held = checkpoint::held_tensors(run.trainer->optimizer().weights_and_state(), {}, *mesh);
    std::size_t weights = 0;
    for (const auto& tensor : held) weights += tensor.name.starts_with("optimizer.") ? 0 : 1;
    CHECK(weights == run.trainer->model().parameters().size());
  });
}

}  // namespace frozen_test
