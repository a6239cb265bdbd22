// The parts of a Llama and sequence parallelism in whole runs: what stages hold, what is saved, evaluated and
// generated. tests/parity compares every gradient on many meshes.
#include <set>

#include "data/eval_windows.h"
#include "tests/models/recipe.h"
#include "tests/support/files.h"
#include "tests/support/sanitized.h"
#include "train/gpt/generate.h"
#include "train/gpt/gpt_source.h"
#include "train/step/evaluate.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

GptConfig llama(double dropout = 0) {
  GptConfig c = small_config(dropout);
  c.kv_heads = 2;
  c.activation = Activation::swiglu;
  c.norm = Norm::rms;
  c.positions = PositionEncoding::rope;
  c.tied = false;
  return c;
}

Recipe sequence_parallel(const GptConfig& config) { return {.config = config, .sequence_parallel = true}; }

const Meshes meshes = {"tp=2", "tp=4", "tp=2,pp=2", "dp=2,tp=2,pp=2"};

}  // namespace

TEST_CASE("a stage of a Llama: no table of positions, a head of its own on the last stage") {
  run_mesh("pp=2", [](const MeshPtr& mesh) {
    const Gpt model(nn::Build(mesh, DType::f32, 1), llama());
    std::set<std::string> outer;
    for (const ParameterPtr& p : model.parameters()) {
      CHECK_FALSE(p->copy_of_earlier_stage);
      if (!p->name.starts_with("blocks.")) outer.insert(p->name);
    }
    CHECK(outer == (mesh->is_first(Axis::pp) ? std::set<std::string>{"wte.weight"}
                                             : std::set<std::string>{"norm.weight", "head.weight"}));
  });
}

TEST_CASE("sequence parallelism trains, with dropout, as one rank does") {
  for (const GptConfig& config : {small_config(0.2), llama(0.2)}) {
    const std::vector<double> one = losses_on("dp=1", {.config = config}, 4);
    for (const std::string& mesh : meshes)
      CHECK_MESSAGE(largest_relative(losses_on(mesh, sequence_parallel(config), 4), one) < 1e-6, mesh);
  }
}

TEST_CASE("what every tp rank holds has bit-equal gradients and weights on all of them, step after step") {
  GptConfig shared = llama();
  shared.kv_heads = 1;
  for (const GptConfig& config : {small_config(), llama(), shared}) {
    Collected tensors;
    run_mesh("dp=2,tp=4", [&](const MeshPtr& mesh) {
      GptRun run = run_of(mesh, sequence_parallel(config));
      for (int step = 0; step < (sanitized ? 3 : 10); ++step) {
        run.step();
        for (const ParameterPtr& p : run.gpt().parameters()) {
          if (p->placements.tp.sharded()) continue;
          tensors.add(fmt::format("{} gradient {}", p->name, step), clone(p->grad()));
          tensors.add(fmt::format("{} {}", p->name, step), clone(p->local.detach()));
        }
      }
    });
    for (const auto& [name, copies] : tensors.all()) {
      CHECK(copies.size() == 8);
      for (const Tensor& copy : copies) CHECK_MESSAGE(same_bits(copy, copies.front()), name);
    }
  }
}

TEST_CASE("the validation loss under sequence parallelism is that of one rank") {
  const EvalWindows windows = EvalWindows::all(test_tokens(16 * 21 - 5), 16);
  for (const GptConfig& config : {small_config(), llama()}) {
    const auto loss_on = [&](const std::string& text, const Recipe& recipe) {
      double loss = 0;
      run_mesh(text, [&](const MeshPtr& mesh) {
        GptRun run = run_of(mesh, recipe);
        const double mine = validation_loss(run.gpt(), windows, 4);
        if (mesh->rank() == 0) loss = mine;
      });
      return loss;
    };
    const double one = loss_on("dp=1", {.config = config});
    for (const std::string& mesh : meshes)
      CHECK_MESSAGE(loss_on(mesh, sequence_parallel(config)) == doctest::Approx(one).epsilon(1e-6), mesh);
  }
}

TEST_CASE("generation under sequence parallelism: texts of any length, also ones that tp does not divide") {
  const std::vector<std::int32_t> prompt = {5, 16, 49};
  for (const GptConfig& config : {small_config(), llama()}) {
    const auto text_on = [&](const std::string& text, const Recipe& recipe) {
      Collected texts;
      run_mesh(text, [&](const MeshPtr& mesh) {
        GptRun run = run_of(mesh, recipe);
        run.steps(5);
        const auto ids = generate(run.gpt(), prompt, {.length = 30, .temperature = 0.8, .top_k = 20});
        texts.add("text", Tensor::from(std::span(ids), {30}));
      });
      for (const Tensor& one : texts.all().at("text")) CHECK(same_bits(one, texts.all().at("text").front()));
      return texts.all().at("text").front();
    };
    const Tensor one = text_on("dp=1", {.config = config});
    for (const std::string& mesh : meshes)
      CHECK_MESSAGE(same_bits(text_on(mesh, sequence_parallel(config)), one), mesh);
  }
}

TEST_CASE("a Llama is saved whole and goes on on another mesh; what describes it is read back") {
  const TempFolder folder;
  const Recipe recipe = sequence_parallel(llama(0.1));
  std::vector<double> first, on_one, on_two;
  const auto train = [&](const std::string& text, const Recipe& with, std::vector<double>& losses, bool save) {
    run_mesh(text, [&](const MeshPtr& mesh) {
      GptRun run = run_of(mesh, with);
      if (!save) run.load(folder.path());
      const std::vector<double> mine = run.steps(3);
      if (save) run.save(folder.path());
      if (mesh->rank() == 0) losses = mine;
    });
  };
  train("tp=4,pp=2", recipe, first, true);
  train("dp=1", {.config = llama(0.1)}, on_one, false);
  train("tp=2", recipe, on_two, false);
  CHECK(largest_relative(on_one, on_two) < 1e-5);
  const std::vector<double> straight = losses_on("dp=1", {.config = llama(0.1)}, 6);
  const std::vector<double> before(straight.begin(), straight.begin() + 3), after(straight.begin() + 3, straight.end());
  CHECK(largest_relative(first, before) < 1e-5);
  CHECK(largest_relative(on_one, after) < 1e-5);
  CHECK(largest_relative(on_two, after) < 1e-5);

  checkpoint::Checkpoint file(find_saved_run(folder.path()));
  CHECK(file.shape("blocks.0.attn.k.weight") == Shape{16, 32});  // of 4 tp ranks, each pair shares one of two heads
  CHECK(file.shape("blocks.0.mlp.gate_up.weight") == Shape{2, 128, 32});
  CHECK(file.shape("head.weight") == Shape{65, 32});
  CHECK_FALSE(file.contains("wpe.weight"));
  const GptConfig config = read_saved_gpt(checkpoint::Checkpoint(find_saved_run(folder.path()))).config;
  CHECK(config.kv_heads == 2);
  CHECK(config.hidden() == 128);
  CHECK(config.activation == Activation::swiglu);
  CHECK(config.norm == Norm::rms);
  CHECK(config.positions == PositionEncoding::rope);
  CHECK_FALSE(config.tied);
}
