// A small training run for tests: what train_gpt does in a step, on made-up tokens, and nothing else.
#pragma once

#include "data/char_tokenizer.h"
#include "data/sampler.h"
#include "models/gpt.h"
#include "optim/gradient_norm.h"
#include "optim/optimizer.h"
#include "parallel/grad_sync.h"
#include "parallel/pipeline/executor.h"
#include "tests/support/mesh.h"
#include "train/saved_run.h"

namespace trireme::testing {

constexpr std::int64_t test_vocab = 65;  // divides by nothing: padding is at work

inline GptConfig small_config(double dropout = 0) {
  return {.layers = 4, .heads = 4, .width = 32, .context = 16, .vocab = test_vocab, .dropout = dropout};
}

/// The tokenizer of `count` characters from the space on.
inline CharTokenizer test_tokenizer(std::int64_t count = test_vocab) {
  std::vector<char32_t> characters;
  for (std::int64_t i = 0; i < count; ++i) characters.push_back(U' ' + static_cast<char32_t>(i));
  return CharTokenizer(std::move(characters));
}

/// Of a run with that tokenizer.
inline RunIdentity test_identity(std::int64_t seed = 7) {
  return {.seed = seed, .tokenizer = test_tokenizer().to_json()};
}

/// `count` tokens in which the next often follows from the last, so that there is something to learn.
inline TokenRange test_tokens(std::int64_t count) {
  std::vector<std::int32_t> ids = {0};
  for (std::int64_t i = 1; i < count; ++i) {
    const std::uint32_t word = random_word(31, 1, static_cast<std::uint64_t>(i));
    ids.push_back(word % 4 == 0 ? static_cast<std::int32_t>(word / 4 % test_vocab)
                                : (ids.back() * 3 + 1) % static_cast<std::int32_t>(test_vocab));
  }
  TokenBuffer buffer(test_vocab);
  buffer.append(ids);
  return TokenRange(in_memory(std::move(buffer)));
}

struct Recipe {
  GptConfig config = small_config();
  DType dtype = DType::f32;
  std::int64_t seed = 7, global_batch = 8, micro_batch = 2;
  const char* pipeline = "1f1b";
  const char* optimizer = "adamw";
  nn::Parallelism parallelism = {};
  Device device = Device::cpu;
  MemoryCategory state = MemoryCategory::optimizer;
};

class Trainer {
 public:
  Trainer(const MeshPtr& mesh, const Recipe& recipe)
      : model(nn::Build(mesh, recipe.dtype, static_cast<std::uint64_t>(recipe.seed), recipe.parallelism, recipe.device),
              recipe.config,
              pipeline::stage_plan(static_cast<int>(recipe.config.layers),
                                   mesh->size(Axis::pp) * pipeline::chunks_per_rank(recipe.pipeline))),
        sync(model.parameters(), *mesh, 16 << 10),
        optimizer(std::string(recipe.optimizer) == "adamw"
                      ? optim::make_adamw(model.parameters(), {.memory = recipe.state})
                      : optim::make_sgd(model.parameters(), {.momentum = 0.9})),
        mesh_(mesh),
        recipe_(recipe),
        sampler_(test_tokens(3000), recipe.config.context, static_cast<std::uint64_t>(recipe.seed)),
        plan_{recipe.global_batch, recipe.micro_batch, mesh->coord(Axis::dp), mesh->size(Axis::dp)},
        executor_(
            pipeline::make_schedule(recipe.pipeline, mesh->size(Axis::pp), static_cast<int>(plan_.micro_batches())),
            mesh->group(Axis::pp)) {}

  /// Summed gradients of the next batch; returns its loss, the same on every rank.
  double gradients() {
    sync.zero();
    model.run().step_sequences = recipe_.global_batch;
    const double scale = 1.0 / static_cast<double>(recipe_.global_batch * recipe_.config.context);
    const pipeline::StageFunctions stage = {
        .forward =
            [&](int s, const Tensor& input, int microbatch) {
              const Batch batch = model.enter(
                  sampler_.make_batch(plan_.first_sample(progress.samples, microbatch), recipe_.micro_batch));
              const Tensor hidden = model.hidden(s, input, batch);  // [B, T, D]
              return model.is_last_stage(s) ? model.loss(hidden, batch, scale) : hidden;
            },
        .activation_shape = model.hidden_shape(recipe_.micro_batch),
        .dtype = recipe_.dtype,
        .device = recipe_.device};
    const auto last_backward = [&](int, int m) { sync.last_microbatch(m + 1 == executor_.schedule().microbatches); };
    const double loss = executor_.run(stage, last_backward).loss;
    sync.finish();
    return pipeline::global_loss(*mesh_, loss);
  }

  /// One optimizer step; returns the loss before it.
  double step() {
    const double loss = gradients();
    const double norm = optim::gradient_norm(model.parameters(), *mesh_);
    optimizer->step(3e-3, optim::clip_factor(norm, 1.0));
    progress = {.steps = progress.steps + 1, .samples = progress.samples + recipe_.global_batch};
    return loss;
  }
  std::vector<double> steps(int count) {
    std::vector<double> losses;
    for (int i = 0; i < count; ++i) losses.push_back(step());
    return losses;
  }

  Gpt model;
  GradSync sync;
  std::unique_ptr<optim::Optimizer> optimizer;
  Progress progress;

 private:
  MeshPtr mesh_;
  Recipe recipe_;
  Sampler sampler_;
  BatchPlan plan_;
  pipeline::Executor executor_;
};

/// The losses of `count` steps on a mesh.
inline std::vector<double> losses_on(const std::string& mesh_text, const Recipe& recipe, int count) {
  std::vector<double> losses;
  run_mesh(mesh_text, [&](const MeshPtr& mesh) {
    const std::vector<double> mine = Trainer(mesh, recipe).steps(count);
    if (mesh->rank() == 0) losses = mine;
  });
  return losses;
}

inline double largest_relative(const std::vector<double>& got, const std::vector<double>& expected) {
  REQUIRE(got.size() == expected.size());
  double largest = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    largest = std::max(largest, std::abs(got[i] - expected[i]) / std::abs(expected[i]));
  return largest;
}

}  // namespace trireme::testing
