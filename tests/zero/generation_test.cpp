// Generation and evaluation between steps under ZeRO, where updated weights may still be in flight: they use the
// weights of the last step, and do not change training.
#include "data/eval_windows.h"
#include "tests/zero/training.h"
#include "train/gpt/generate.h"
#include "train/gpt/next_logits.h"
#include "train/step/evaluate.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr int steps = 3;

/// By step and length of the text, the logits of the token after it; the same bits on every rank that has them.
std::map<std::string, Tensor> logits_after_steps(const ZeroRun& run) {
  const std::vector<std::int32_t> text = {5, 16, 49, 18, 55, 36, 44, 3};
  const GptOptions o = options_of(run);
  Collected logits;
  run_mesh(run.mesh, [&](const MeshPtr& mesh) {
    GptRun run(o, mesh);
    for (int step = 1; step <= steps; ++step) {
      run.steps(1);
      NextLogits next(run.gpt(), 8);
      for (const std::size_t length : {std::size_t{3}, std::size_t{4}, std::size_t{8}}) {
        const Tensor found = next(std::span(text).first(length));  // [1, 1, V]
        if (found.defined()) logits.add(fmt::format("step {}, {} tokens", step, length), clone(found));
      }
    }
  });
  std::map<std::string, Tensor> result;
  for (const auto& [name, found] : logits.all()) {
    for (const Tensor& one : found) CHECK_MESSAGE(same_bits(one, found.front()), run.mesh, " ", name);
    result[name] = found.front();
  }
  return result;
}

/// Losses of the steps, and the last rank's weights at the end. `disturbed`: with evaluation and generation after every
/// step.
std::pair<std::vector<double>, std::vector<Tensor>> outcome(const ZeroRun& run, bool disturbed) {
  const GptOptions o = options_of(run);
  std::vector<double> losses;
  std::vector<Tensor> weights;
  std::mutex mutex;
  run_mesh(run.mesh, [&](const MeshPtr& mesh) {
    GptRun run(o, mesh);
    std::vector<double> mine;
    for (int step = 0; step < steps; ++step) {
      mine.push_back(run.step());
      if (!disturbed) continue;
      validation_loss(run.trainer.model(), EvalWindows::all(test_tokens(8 * 21 - 5), 8), 4);
      generate(run.gpt(), std::vector<std::int32_t>{1, 2, 3}, {.length = 4});
    }
    const std::vector<StateTensor> held = run.trainer.optimizer().weights();
    const std::scoped_lock lock(mutex);
    if (mesh->rank() == 0) losses = mine;
    if (mesh->rank() != mesh->world().size() - 1) return;  // whose stage has the head
    for (const StateTensor& weight : held) weights.push_back(clone(weight.value));
  });
  return {losses, weights};
}

}  // namespace

TEST_CASE("logits after a step are of that step's weights, under every stage and on any mesh") {
  const std::map<std::string, Tensor> one = logits_after_steps({.mesh = "dp=1"});
  CHECK(one.size() == 3 * steps);
  for (const std::string& mesh : Meshes{"dp=2", "dp=2,pp=2", "dp=2,tp=2"}) {
    std::map<std::string, Tensor> whole;
    for (const std::int64_t zero : {0, 1, 2, 3}) {
      const std::map<std::string, Tensor> found = logits_after_steps({.mesh = mesh, .zero = zero});
      if (zero == 0) whole = found;
      REQUIRE(found.size() == one.size());
      for (const auto& [name, logits] : found) {
        INFO(mesh, " zero ", zero, " ", name);
        CHECK(same_bits(logits, whole.at(name)));
        CHECK(relative_difference(logits, one.at(name)) < 1e-4);
      }
    }
  }
}

TEST_CASE("under ZeRO, training with evaluation and generation in between is training without, bit for bit") {
  for (const std::int64_t zero : {1, 2, 3}) {
    for (const std::string& pipeline : {std::string("1f1b"), std::string("interleaved:2")}) {
      const ZeroRun run{.mesh = "dp=2,pp=2", .zero = zero, .micro_batches = 2, .pipeline = pipeline};
      const auto [plain_losses, plain_weights] = outcome(run, false);
      const auto [losses, weights] = outcome(run, true);
      INFO("zero ", zero, " ", pipeline);
      CHECK(losses == plain_losses);
      REQUIRE(weights.size() == plain_weights.size());
      for (std::size_t i = 0; i < weights.size(); ++i) CHECK(same_bits(weights[i], plain_weights[i]));
    }
  }
}
