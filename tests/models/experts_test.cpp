// The whole GPT with experts: its size, evaluation and generation on any mesh, and runs that move between meshes.
// tests/parity/experts_test.cpp compares every gradient on many meshes, tests/nn/moe_test.cpp tests the layer alone.
#include "data/eval_windows.h"
#include "tests/models/recipe.h"
#include "tests/support/files.h"
#include "train/gpt/generate.h"
#include "train/gpt/gpt_source.h"
#include "train/step/evaluate.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

GptConfig with_experts(std::int64_t shared = 1) {
  GptConfig config = small_config();
  config.layers = 2;
  config.experts = {.count = 4, .top_k = 2, .capacity_factor = 1.0, .shared = shared};
  return config;
}

}  // namespace

TEST_CASE("parameter_count is what a model with experts makes; top_k of them and the shared ones are active") {
  for (const bool gated : {true, false}) {
    for (const std::int64_t shared : {0, 2}) {
      GptConfig config = with_experts(shared);
      config.activation = gated ? Activation::swiglu : Activation::gelu;
      config.ffn_width = 48;
      run_mesh("dp=1", [&](const MeshPtr& mesh) {
        const Gpt model(nn::Build(mesh, DType::f32, 1), config);
        std::int64_t all = 0, active = 0, products = 0;
        for (const ParameterPtr& p : model.parameters()) {
          const std::int64_t count = p->global_shape.with(0, p->logical_rows).count();
          const bool routed = p->name.find(".mlp.up.") != std::string::npos ||
                              p->name.find(".mlp.gate_up.") != std::string::npos ||
                              p->name.find(".mlp.down.") != std::string::npos;
          all += count;
          active += routed ? count * 2 / 4 : count;
          if (p->decay && p->name != "wpe.weight") products += routed ? count * 2 / 4 : count;
        }
        CHECK(parameter_count(config) == all);
        CHECK(active_parameter_count(config) == active);
        const double attention = 6 * static_cast<double>(config.layers * config.width * (config.context + 1));
        CHECK(training_flops_per_token(config) == doctest::Approx(6 * static_cast<double>(products) + attention));
      });
    }
  }
  CHECK(active_parameter_count(small_config()) == parameter_count(small_config()));
}

TEST_CASE("every third block has experts: the others are as without, and counts and costs say so") {
  GptConfig mixed = with_experts();
  mixed.layers = 7;
  mixed.moe_every = 3;
  CHECK(mixed.mixtures() == 2);
  run_mesh("dp=1", [&](const MeshPtr& mesh) {
    const Gpt model(nn::Build(mesh, DType::f32, 1), mixed);
    std::int64_t all = 0, active = 0;
    std::vector<double> products(7);  // elements of a block's matrices that one token uses
    for (const ParameterPtr& p : model.parameters()) {
      const std::int64_t count = p->global_shape.with(0, p->logical_rows).count();
      const bool in_block = p->name.rfind("blocks.", 0) == 0;
      const std::size_t block = in_block ? static_cast<std::size_t>(p->name[7] - '0') : 0;
      const bool mixture = in_block && (block == 2 || block == 5);
      if (p->name.find(".router.") != std::string::npos) CHECK(mixture);
      const bool routed =
          mixture && (p->name.find(".mlp.up.") != std::string::npos || p->name.find(".mlp.down.") != std::string::npos);
      all += count;
      active += routed ? count * 2 / 4 : count;
      if (in_block && p->decay) products[block] += static_cast<double>(routed ? count * 2 / 4 : count);
    }
    CHECK(parameter_count(mixed) == all);
    CHECK(active_parameter_count(mixed) == active);
    const pipeline::StageCosts costs = stage_costs(mixed);
    REQUIRE(costs.blocks.size() == 7);
    double sum = costs.head;  // the cost without masked keys
    for (std::size_t i = 0; i < 7; ++i) {
      const double attention = 4.0 * static_cast<double>(mixed.width * mixed.context);
      CHECK(costs.blocks[i] == doctest::Approx(2 * products[i] + attention));
      sum += costs.blocks[i] - 2.0 * static_cast<double>(mixed.width * (mixed.context - 1));
    }
    CHECK(costs.blocks[2] > 1.5 * costs.blocks[1]);
    CHECK(training_flops_per_token(mixed) == doctest::Approx(3 * sum));
  });
}

TEST_CASE("initial weights of experts do not depend on the mesh") {
  Collected weights;
  for (const std::string& text : Meshes{"dp=1", "dp=2,ep=2", "dp=4,ep=4", "dp=2,ep=2,tp=2", "pp=2"}) {
    run_mesh(text, [&](const MeshPtr& mesh) {
      const Gpt model(nn::Build(mesh, DType::f32, 1), with_experts());
      for (const ParameterPtr& p : model.parameters()) weights.add(p->name, whole(p->local, *p, *mesh));
    });
  }
  CHECK(weights.all().contains("blocks.1.mlp.router.weight"));
  for (const auto& [name, tensors] : weights.all()) {
    for (const Tensor& tensor : tensors) CHECK_MESSAGE(same_bits(tensor, tensors.front()), name);
  }
}

TEST_CASE("a model with experts learns, evaluates and generates the same on every mesh; evaluation drops nothing") {
  const Recipe recipe{.config = with_experts()};
  const auto outcome = [&](const std::string& text) {
    std::mutex mutex;
    std::vector<std::pair<std::vector<double>, std::vector<std::int32_t>>> all;
    run_mesh(text, [&](const MeshPtr& mesh) {
      GptRun run = run_of(mesh, recipe);
      std::vector<double> losses = run.steps(8);
      losses.push_back(validation_loss(run.gpt(), EvalWindows::all(test_tokens(16 * 21 - 5), 16), 2));
      const std::vector<std::int32_t> prompt = {1, 2, 3};
      std::vector<std::int32_t> tokens = generate(run.gpt(), prompt, {.length = 24, .seed = 5});
      const std::scoped_lock lock(mutex);
      all.emplace_back(std::move(losses), std::move(tokens));
    });
    for (const auto& rank : all) CHECK_MESSAGE(rank == all.front(), text);
    return all.front();
  };
  const auto one = outcome("dp=1");
  CHECK(one.first[7] < one.first[0]);
  for (const std::string& text : Meshes{"dp=2,ep=2", "dp=4,ep=4", "dp=2,ep=2,tp=2,pp=2"}) {
    const auto got = outcome(text);
    CHECK_MESSAGE(largest_relative(got.first, one.first) < 1e-5, text);
    CHECK_MESSAGE(got.second == one.second, text);
  }
}

TEST_CASE("experts move from mesh to mesh with the bits of every whole tensor, and the file says what they are") {
  const TempFolder folder;
  const Recipe recipe{.config = with_experts()};
  run_mesh("dp=2,ep=2,tp=2,pp=2", [&](const MeshPtr& mesh) {
    GptRun run = run_of(mesh, recipe);
    run.steps(3);
    run.save(folder / "a");
  });
  const std::vector<std::pair<std::string, std::string>> moves = {
      {"dp=4,ep=4", "b"}, {"dp=1", "c"}, {"dp=4,ep=2", "d"}, {"dp=2,ep=2,tp=2,pp=2", "e"}};
  std::filesystem::path from = folder / "a";
  for (const auto& [text, to] : moves) {
    run_mesh(text, [&, to = to](const MeshPtr& mesh) {
      GptRun run = run_of(mesh, recipe);
      run.steps(1);
      run.load(from);
      run.save(folder / to);
    });
    from = folder / to;
  }
  checkpoint::Checkpoint first(find_saved_run(folder / "a"));
  CHECK(first.shape("blocks.1.mlp.up.weight") == Shape{4, 128, 32});
  CHECK(first.shape("optimizer.v.blocks.0.mlp.down.bias") == Shape{4, 32});
  for (const auto& [text, to] : moves) {
    checkpoint::Checkpoint other(find_saved_run(folder / to));
    CHECK(without_date(other.manifest().run) == without_date(first.manifest().run));
    REQUIRE(other.names() == first.names());
    for (const std::string& name : first.names())
      CHECK_MESSAGE(same_bits(first.read(name), other.read(name)), text, ": ", name);
  }
  const nn::ExpertsOptions saved = read_saved_gpt(checkpoint::Checkpoint(find_saved_run(folder / "e"))).config.experts;
  CHECK(saved.count == 4);
  CHECK(saved.top_k == 2);
  CHECK(saved.shared == 1);

  Recipe other = recipe;
  other.config.experts.top_k = 1;
  run_mesh("dp=1", [&](const MeshPtr& mesh) {
    GptRun run = run_of(mesh, other);
    CHECK_THROWS_WITH_AS(run.load(folder / "a"), doctest::Contains("was saved with --top-k 2, and this run has 1"),
                         Error);
  });
}

TEST_CASE("a saved run says which blocks have experts") {
  const TempFolder folder;
  Recipe recipe{.config = with_experts()};
  recipe.config.moe_every = 2;
  run_mesh("dp=2,ep=2,pp=2", [&](const MeshPtr& mesh) {
    GptRun run = run_of(mesh, recipe);
    run.steps(1);
    run.save(folder / "run");
  });
  CHECK(read_saved_gpt(checkpoint::Checkpoint(find_saved_run(folder / "run"))).config.moe_every == 2);
  recipe.config.moe_every = 1;
  run_mesh("dp=1", [&](const MeshPtr& mesh) {
    GptRun run = run_of(mesh, recipe);
    CHECK_THROWS_WITH_AS(run.load(folder / "run"),
                         doctest::Contains("was saved with --moe-every 2, and this run has 1"), Error);
  });
}
