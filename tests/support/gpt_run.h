// A small GPT's training run on made-up tokens, for tests: steps of the Trainer that train_gpt has, saved and resumed.
// Read next: train/step/trainer.h, tests/support/mesh.h.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/char_tokenizer.h"
#include "data/sampler.h"
#include "tests/support/mesh.h"
#include "train/gpt/gpt_setup.h"
#include "train/runs/saved_run.h"
#include "train/step/trainer.h"

namespace trireme::testing {

constexpr std::int64_t test_vocab = 65;  // not a multiple of any tp in use, so there is padding

inline GptConfig small_config(double dropout = 0) {
  return {.layers = 4, .heads = 4, .width = 32, .context = 16, .vocab = test_vocab, .dropout = dropout};
}

/// The tokenizer of `count` characters from the space on.
inline CharTokenizer test_tokenizer(std::int64_t count = test_vocab) {
  std::vector<char32_t> characters;
  for (std::int64_t i = 0; i < count; ++i) characters.push_back(U' ' + static_cast<char32_t>(i));
  return CharTokenizer(std::move(characters));
}

/// The identity of a run with that tokenizer.
inline RunIdentity test_identity(std::int64_t seed = 7) {
  return {.seed = seed, .tokenizer = test_tokenizer().to_json()};
}

/// The texts of a checkpoint that two saves of the same run have in common.
inline RunTexts without_date(RunTexts texts) {
  texts.erase(written_entry);
  return texts;
}

/// `count` tokens in which the next one often follows from the last one, so that there is something to learn.
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

/// This rank's part of a run: the Trainer, and the samples it has seen. Options are resolved.
struct GptRun {
  GptRun(const GptOptions& o, const MeshPtr& mesh)
      : options(o),
        plan(o.batch_sizes().on_rank(mesh->coord(Axis::dp))),
        trainer(make_gpt(o, o.model.config, mesh), o, 4 << 10),
        sampler(test_tokens(3000), o.model.config.context, 7) {}

  /// Summed gradients of the next batch; returns its loss, the same on every rank.
  double gradients() {
    const auto next = [&](int microbatch) {
      return sampler.make_batch(plan.first_sample(progress.samples, microbatch), options.batch_sizes().micro_batch);
    };
    const double tokens = static_cast<double>(options.batch_sizes().tokens_per_step(options.model.config.context));
    const Tensor loss = trainer.gradients(next, 1.0 / tokens).pipeline.loss;
    return pipeline::global_loss(trainer.model().mesh(), loss);
  }
  /// One step; returns the loss before it.
  double step() {
    const double loss = gradients();
    trainer.update(3e-3, trainer.gradient_norm());
    progress = {.steps = progress.steps + 1, .samples = progress.samples + options.batch_sizes().global_batch};
    return loss;
  }
  std::vector<double> steps(int count) {
    std::vector<double> losses;
    for (int i = 0; i < count; ++i) losses.push_back(step());
    return losses;
  }
  std::string save(const std::filesystem::path& out, const RunIdentity& identity = test_identity()) {
    return save_run(out, gpt(), optimizer(), progress, identity);
  }
  void load(const std::filesystem::path& from, const RunIdentity& identity = test_identity()) {
    progress = load_run(from, gpt(), optimizer(), identity).progress;
  }

  Gpt& gpt() { return dynamic_cast<Gpt&>(trainer.model()); }
  optim::Optimizer& optimizer() { return trainer.optimizer(); }

  GptOptions options;
  BatchPlan plan;
  Trainer trainer;
  Sampler sampler;
  Progress progress;
};

}  // namespace trireme::testing
