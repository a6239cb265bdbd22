// The whole GPT: its number of parameters, what each pipeline stage holds, and that no mesh changes what it computes.
// tests/golden compares with another framework, tests/parity compares every gradient on many meshes.
#include "models/gpt.h"

#include <set>

#include "parallel/pipeline/schedules.h"
#include "tests/models/recipe.h"
#include "tests/support/sanitized.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

/// Every weight by name after `steps` steps, as a whole tensor; both copies of a tied one.
void collect_weights(const std::string& mesh_text, const Recipe& recipe, int steps, Collected& weights) {
  run_mesh(mesh_text, [&](const MeshPtr& mesh) {
    GptRun run = run_of(mesh, recipe);
    run.steps(steps);
    for (const ParameterPtr& p : run.gpt().parameters()) weights.add(p->name, whole(p->local, *p, *mesh));
  });
}

void collect_gradients(const std::string& mesh_text, const Recipe& recipe, Collected& gradients) {
  run_mesh(mesh_text, [&](const MeshPtr& mesh) {
    GptRun run = run_of(mesh, recipe);
    gradients.add("loss", Tensor::full({1}, run.gradients(), DType::f64));
    for (const ParameterPtr& p : run.gpt().parameters()) gradients.add(p->name, whole(p->grad(), *p, *mesh));
  });
}

/// Counts the parameters that the model makes, without padded rows and copies. `products_only`: only weights of matrix
/// products.
std::int64_t counted(const GptConfig& config, const std::string& mesh_text, bool products_only) {
  std::mutex mutex;
  std::int64_t total = 0;
  run_mesh(mesh_text, [&](const MeshPtr& mesh) {
    const Gpt model(nn::Build(mesh, DType::f32, 1), config);
    if (!mesh->is_first(Axis::tp) || !mesh->is_first(Axis::dp)) return;
    const std::scoped_lock lock(mutex);
    for (const ParameterPtr& p : model.parameters()) {
      const bool looked_up = p->name == "wpe.weight" || (p->name == "wte.weight" && !config.tied);
      if (p->copy_of_earlier_stage || (products_only && (!p->decay || looked_up))) continue;
      total += p->global_shape.with(0, p->logical_rows).count();
    }
  });
  return total;
}

}  // namespace

TEST_CASE("the published sizes have the published numbers of parameters") {
  CHECK(parameter_count(gpt_preset("gpt2-124m").value()) == 124'439'808);
  CHECK(parameter_count(gpt_preset("gpt2-350m").value()) == 354'823'168);
  CHECK(parameter_count(gpt_preset("gpt2-774m").value()) == 774'030'080);
  CHECK(parameter_count(gpt_preset("gpt2-1.5b").value()) == 1'557'611'200);
  CHECK(parameter_count(gpt_preset("llama-130m").value()) == 134'105'856);
  CHECK(parameter_count(gpt_preset("tinyllama-1.1b").value()) == 1'100'048'384);
  CHECK(parameter_count(gpt_preset("llama2-7b").value()) == 6'738'415'616);
  CHECK(parameter_count(gpt_preset("llama2-13b").value()) == 13'015'864'320);
  CHECK(parameter_count(gpt_preset("llama2-70b").value()) == 68'976'648'192);
  CHECK_FALSE(gpt_preset("gpt2").has_value());
  CHECK(parameter_count(gpt_preset("llama3.2-1b").value()) == 1'235'814'400);
  CHECK(parameter_count(gpt_preset("llama3.2-3b").value()) == 3'212'749'824);
  CHECK(parameter_count(gpt_preset("llama3.1-8b").value()) == 8'030'261'248);
  CHECK(parameter_count(gpt_preset("llama3.1-70b").value()) == 70'553'706'496);
  CHECK(parameter_count(gpt_preset("llama3.1-405b").value()) == 405'853'388'800);
  CHECK(parameter_count(gpt_preset("mistral-7b").value()) == 7'241'732'096);
  CHECK(parameter_count(gpt_preset("mistral-nemo-12b").value()) == 12'247'782'400);
  CHECK(parameter_count(gpt_preset("mixtral-8x7b").value()) == 46'702'792'704);
  CHECK(active_parameter_count(gpt_preset("mixtral-8x7b").value()) == 12'879'925'248);
  CHECK(parameter_count(gpt_preset("qwen2.5-0.5b").value()) == 494'032'768);
  CHECK(parameter_count(gpt_preset("qwen2.5-1.5b").value()) == 1'543'714'304);
  CHECK(parameter_count(gpt_preset("qwen2.5-7b").value()) == 7'615'616'512);
  CHECK(parameter_count(gpt_preset("qwen3-0.6b").value()) == 596'049'920);
  CHECK(parameter_count(gpt_preset("qwen3-1.7b").value()) == 1'720'574'976);
  CHECK(parameter_count(gpt_preset("qwen3-4b").value()) == 4'022'468'096);
  CHECK(parameter_count(gpt_preset("qwen3-8b").value()) == 8'190'735'360);
  CHECK(parameter_count(gpt_preset("qwen3-30b-a3b").value()) == 30'532'122'624);
  CHECK(parameter_count(gpt_preset("gemma-2b").value()) == 2'506'172'416);
  CHECK(parameter_count(gpt_preset("gemma2-2b").value()) == 2'614'341'888);
  CHECK(parameter_count(gpt_preset("gemma2-9b").value()) == 9'241'705'984);
  CHECK(parameter_count(gpt_preset("gemma3-1b").value()) == 999'885'952);
  CHECK(gpt_preset_names().size() == 29);
}

TEST_CASE("parameter_count is what the model makes, on any mesh; so are the products behind the FLOPs" *
          doctest::test_suite("thorough")) {
  std::vector<GptConfig> configs;
  // The presets, but small: a quarter of the layers, and heads of width 4.
  for (const std::string_view name : gpt_preset_names()) {
    GptConfig c = gpt_preset(name).value();
    configs.push_back(c);
    configs.back().layers = c.layers / 4;
    configs.back().width = c.heads * 4;
    if (c.head_width) configs.back().head_width = 6;
    if (c.ffn_width) configs.back().ffn_width = c.heads * 10;
    configs.back().context = 32;
    configs.back().vocab = 257;
    if (c.experts.count > 0) configs.back().experts.count = configs.back().experts.top_k = 2;
    if (c.expert_ffn_width) configs.back().expert_ffn_width = 8;
    if (sanitized) break;
  }
  for (const bool bias : {true, false})
    configs.push_back({.layers = 5, .heads = 4, .width = 24, .context = 17, .vocab = 65, .bias = bias});
  for (const bool rotary : {true, false}) {  // a key bias only when keys are rotated
    configs.push_back(configs.back());
    configs.back().bias = true;
    configs.back().kv_heads = 2;
    configs.back().activation = Activation::swiglu;
    configs.back().positions = rotary ? PositionEncoding::rope : PositionEncoding::learned;
    configs.back().tied = !rotary;
  }
  for (const bool rotary : {true, false}) {  // keys have a bias, too, if they are normalised or scores are capped
    configs.push_back(configs.back());
    configs.back().bias = true;
    configs.back().positions = rotary ? PositionEncoding::rope : PositionEncoding::learned;
    configs.back().qk_norm = rotary;
    if (!rotary) configs.back().attention_softcap = 3;
    configs.back().activation = rotary ? Activation::geglu : Activation::relu2;
    configs.back().window = rotary ? 5 : 40;
    configs.back().full_every = 2;
  }
  for (const bool rotary : {true, false}) {  // biases of queries, keys and values only
    configs.push_back(configs.back());
    configs.back().bias = false;
    configs.back().qkv_bias = true;
    configs.back().positions = rotary ? PositionEncoding::rope : PositionEncoding::learned;
    configs.back().qk_norm = false;
    configs.back().attention_softcap = std::nullopt;
  }
  for (const std::int64_t every : {1, 2}) {  // experts of another width than the MLP
    configs.push_back({.layers = 5, .heads = 4, .width = 24, .context = 17, .vocab = 65, .bias = every == 1});
    configs.back().experts = {.count = 4, .top_k = 4, .shared = every - 1};
    configs.back().activation = Activation::swiglu;
    configs.back().expert_ffn_width = 10;
    configs.back().moe_every = every;
  }
  for (const bool packed : {true, false}) {  // heads that are wider than a part of the width, and narrower
    configs.push_back({.layers = 3, .heads = 4, .width = 26, .context = 17, .vocab = 65});
    configs.back().head_width = packed ? 10 : 4;
    if (!packed) configs.back().kv_heads = 2, configs.back().qk_norm = true;
    configs.back().post_norms = true;
    if (packed) configs.back().norm = Norm::rms;
  }
  for (std::size_t i = 0, n = configs.size(); i < n; ++i) {  // with adapters
    configs.push_back(configs[i]);
    configs.back().lora = {.rank = 3, .targets = i % 2 == 0 ? "*.attn.*,*.mlp.*" : "*.attn.q*,*.attn.proj,*.mlp*.down"};
  }
  for (const GptConfig& c : configs) {
    CAPTURE(c.layers);
    CAPTURE(c.width);
    for (const std::string& mesh : Meshes{"dp=1", "pp=3"}) CHECK(parameter_count(c) == counted(c, mesh, false));
    if (c.heads % 2 == 0) CHECK(parameter_count(c) == counted(c, "dp=2,tp=2,pp=2", false));
    // Each weight of a product costs a multiply and an add, once in forward and twice in backward. Attention computes
    // q k^T and p v, for each query with its own and all earlier keys.
    // A frozen weight has no gradient, which is one of the two products of backward.
    const double adapters = static_cast<double>(adapter_parameter_count(c)),
                 others = static_cast<double>(counted(c, "dp=1", true)) - adapters;
    const double products = 6 * adapters + (c.lora.rank > 0 ? 4 : 6) * others;
    std::int64_t pairs = 0;  // of a query and a key, in a sequence
    for (std::int64_t block = 0; block < c.layers; ++block)
      for (std::int64_t query = 0; query < c.context; ++query)
        pairs += std::min(query + 1, c.has_window(block) ? *c.window : c.context);
    const double attention = 6 * static_cast<double>(2 * c.attention_width() * pairs) / static_cast<double>(c.context);
    CHECK(training_flops_per_token(c) == doctest::Approx(products + attention));
  }
}

TEST_CASE("a stage makes its blocks only, under their global names, and the last one a copy of the embedding") {
  run_mesh("pp=3", [](const MeshPtr& mesh) {
    const Gpt model(nn::Build(mesh, DType::f32, 1), {.layers = 3, .heads = 2, .width = 8, .context = 4, .vocab = 65});
    std::set<std::string> outer;
    for (const ParameterPtr& p : model.parameters()) {
      const std::string own_block = fmt::format("blocks.{}.", mesh->coord(Axis::pp));
      if (!p->name.starts_with(own_block)) outer.insert(p->name + (p->copy_of_earlier_stage ? " (copy)" : ""));
    }
    const std::vector<std::set<std::string>> expected = {
        {"wte.weight", "wpe.weight"}, {}, {"norm.weight", "norm.bias", "wte.weight (copy)"}};
    CHECK(outer == expected[static_cast<std::size_t>(mesh->coord(Axis::pp))]);
  });
}

TEST_CASE(
    "a pipeline computes what one rank does: loss and gradients bit for bit, the tied embedding and weights to "
    "rounding") {
  for (const double dropout : {0.0, 0.1}) {
    const Recipe recipe{.config = small_config(dropout)};
    Collected one, weights;
    collect_gradients("pp=1", recipe, one);
    collect_weights("pp=1", recipe, 3, weights);
    for (const std::string& mesh : Meshes{"pp=2", "pp=3", "pp=4"}) {
      for (const std::string& schedule : pipeline::schedule_examples()) {
        if (mesh != "pp=2" && pipeline::chunks_per_rank(schedule) > 1) continue;  // 4 layers fill 4 stages
        Recipe on_stages = recipe;
        on_stages.pipeline = schedule.c_str();
        Collected got, got_weights;
        collect_gradients(mesh, on_stages, got);
        collect_weights(mesh, on_stages, 3, got_weights);
        CHECK(got.all().size() == one.all().size());
        for (const auto& [name, tensors] : got.all()) {
          const Tensor& expected = one.all().at(name).front();
          for (const Tensor& tensor : tensors) {
            // The embedding's gradient is the sum of two stages' gradients, in another order than on one rank.
            CHECK_MESSAGE(
                (name == "wte.weight" ? relative_difference(tensor, expected) < 1e-6 : same_bits(tensor, expected)),
                mesh, " ", schedule, ": ", name);
          }
        }
        CHECK(got_weights.all().at("wte.weight").size() == 2);
        CHECK(got_weights.all().size() == weights.all().size());
        for (const auto& [name, tensors] : got_weights.all()) {
          // The clipping depends on the embedding's gradient, so weights agree to rounding. AdamW divides by the root
          // of small sums. A key bias has no gradient but for rounding, so AdamW moves it at random.
          if (name.ends_with("qkv.bias")) continue;
          const double most = name == "wte.weight" ? 1e-5 : 1e-4;
          for (const Tensor& tensor : tensors)
            CHECK_MESSAGE(relative_difference(tensor, weights.all().at(name).front()) < most, mesh, " ", schedule, ": ",
                          name);
        }
      }
    }
  }
}

TEST_CASE("both copies of the tied embedding stay bit-equal for 20 steps") {
  const int steps = sanitized ? 5 : 20;
  const auto check_copies = [steps](const std::string& mesh, DType dtype, const char* schedule) {
    Collected weights;
    collect_weights(mesh, {.dtype = dtype, .pipeline = schedule}, steps, weights);
    const std::vector<Tensor>& copies = weights.all().at("wte.weight");
    CHECK(copies.size() ==
          2 * static_cast<std::size_t>(parse_mesh(mesh, 0).ranks() / parse_mesh(mesh, 0).size(Axis::pp)));
    for (const Tensor& copy : copies)
      CHECK_MESSAGE(same_bits(copy, copies.front()), mesh, " ", name(dtype), " ", schedule);
  };
  for (const std::string& mesh : Meshes{"pp=2", "dp=2,pp=2", "tp=2,pp=2", "pp=3"}) {
    for (const DType dtype : {DType::f32, DType::bf16}) check_copies(mesh, dtype, "1f1b");
    check_copies(mesh, DType::f32, "zero-bubble");
  }
  for (const std::string& mesh : Meshes{"pp=2", "dp=2,pp=2"}) check_copies(mesh, DType::f32, "interleaved:2");
}

TEST_CASE("a tied embedding whose two stages live on one rank is added once: chunks change no bit") {
  for (const std::string& mesh : Meshes{"pp=1", "dp=2"}) {
    Collected whole_model, chunks;
    collect_gradients(mesh, {}, whole_model);
    collect_gradients(mesh, {.pipeline = "interleaved:4"}, chunks);
    CHECK(chunks.all().size() == whole_model.all().size());
    for (const auto& [name, tensors] : chunks.all()) {
      for (const Tensor& tensor : tensors)
        CHECK_MESSAGE(same_bits(tensor, whole_model.all().at(name).front()), mesh, " ", name);
    }
  }
}

TEST_CASE("stages by cost: a large vocabulary leaves fewer blocks to the last stage") {
  const GptConfig large = gpt_preset("gpt2-124m").value();
  const pipeline::StageCosts costs = stage_costs(large);
  // Forward FLOPs per token: the products of a block and of the head, and attention to all keys.
  REQUIRE(costs.blocks.size() == 12);
  CHECK(costs.blocks.front() == 24.0 * 768 * 768 + 4.0 * 768 * 1024);
  const double masked = 12 * 4.0 * 768 * (1024 - 1) / 2;  // of masked keys, which training does not count
  CHECK(costs.blocks.front() * 12 + costs.head - masked == doctest::Approx(training_flops_per_token(large) / 3));
  CHECK(costs.embedding > 0);
  CHECK(costs.head > 4 * costs.blocks.front());
  const auto plan = pipeline::stage_plan(12, 2, costs);
  CHECK(plan[0].count == 8);
  CHECK(plan[1].count == 4);
}

TEST_CASE("what is replicated stays bit-equal on all ranks for 20 steps") {
  Collected weights;
  collect_weights("dp=2,tp=2,pp=2", {}, 20, weights);
  for (const auto& [name, tensors] : weights.all()) {
    for (const Tensor& tensor : tensors) CHECK_MESSAGE(same_bits(tensor, tensors.front()), name);
  }
}

TEST_CASE("with dropout, losses are the same on every mesh and for every way of cutting the batch") {
  const Recipe recipe{.config = small_config(0.2)};
  const std::vector<double> one = losses_on("dp=1", recipe, 4), dry = losses_on("dp=1", {}, 4);
  CHECK(largest_relative(one, dry) > 1e-3);  // dropout has an effect
  for (const std::string& mesh : Meshes{"dp=2", "dp=4", "tp=2", "tp=4", "pp=2", "dp=2,tp=2", "dp=2,tp=2,pp=2"}) {
    CHECK_MESSAGE(largest_relative(losses_on(mesh, recipe, 4), one) < 1e-6, mesh);
  }
  for (const std::int64_t micro_batch : {1, 4, 8}) {
    Recipe cut = recipe;
    cut.micro_batch = micro_batch;
    CHECK_MESSAGE(largest_relative(losses_on("dp=1", cut, 4), one) < 1e-6, "micro-batches of ", micro_batch);
  }
}

TEST_CASE("the same mesh gives the same bits run after run") {
  const Recipe recipe{.config = small_config(0.1)};
  for (const std::string& mesh : Meshes{"dp=1", "dp=2,tp=2,pp=2"})
    CHECK(losses_on(mesh, recipe, 6) == losses_on(mesh, recipe, 6));
}

TEST_CASE("training learns what the tokens hold") {
  const std::vector<double> losses = losses_on("tp=2", {}, 40);
  CHECK(losses.front() == doctest::Approx(std::log(65.0)).epsilon(0.02));
  CHECK(losses.back() < 0.8 * losses.front());
}

TEST_CASE("whole logits are the same on every tp rank, without padding") {
  Collected logits;
  const Tensor input = random_ids({2, 9}, 3, 0, test_vocab);
  for (const std::string& text : Meshes{"tp=1", "tp=2", "tp=4"}) {
    run_mesh(text, [&](const MeshPtr& mesh) {
      Gpt model(nn::Build(mesh, DType::f32, 1), small_config());
      logits.add("logits", model.gathered_logits(model.hidden(0, {}, token_batch(input, {}, {0, 1}))).detach());
    });
  }
  const std::vector<Tensor>& all = logits.all().at("logits");
  CHECK(all.size() == 7);
  CHECK(all.front().shape() == Shape{2, 9, test_vocab});
  for (const Tensor& one : all) CHECK(relative_difference(one, all.front()) < 1e-6);
}

TEST_CASE("a sequence longer than the context, and more stages than blocks, are refused") {
  const auto model_on = [](const char* text, std::int64_t length) {
    run_mesh(text, [&](const MeshPtr& mesh) {
      Gpt model(nn::Build(mesh, DType::f32, 1), small_config());
      if (mesh->is_first(Axis::pp))
        model.hidden(0, {}, token_batch(random_ids({1, length}, 3, 0, test_vocab), {}, {0}));
    });
  };
  CHECK_THROWS_WITH_AS(model_on("dp=1", 17), doctest::Contains("sequences of 17 tokens do not fit the context of 16"),
                       Error);
  CHECK_THROWS_AS(model_on("pp=5", 1), Error);
}
