// A training run for the tests of checkpoints: train_gpt's Trainer on made-up tokens.
#pragma once

#include <doctest/doctest.h>

#include "core/kernels.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/checkpoint/folder.h"
#include "tests/models/trainer.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/sanitized.h"
#include "train/gpt_setup.h"
#include "train/saved_run.h"
#include "train/trainer.h"
#include "train/validate.h"

namespace trireme::testing {

using testing::sanitized;

struct TrainedRun {
  TrainedRun(const TrainOptions& o, const MeshPtr& mesh)
      : options(o), plan(o.batch_sizes().on_rank(mesh->coord(Axis::dp))), trainer(make_gpt(o, mesh), o, 4 << 10) {}

  void steps(int count) {
    for (int i = 0; i < count; ++i) {
      const auto next = [&](int microbatch) {
        return sampler.make_batch(plan.first_sample(progress.samples, microbatch), options.batch_sizes().micro_batch);
      };
      const double tokens = static_cast<double>(options.batch_sizes().tokens_per_step(options.model.config.context));
      trainer.gradients(next, 1.0 / tokens);
      trainer.update(3e-3, trainer.gradient_norm());
      progress = {.steps = progress.steps + 1, .samples = progress.samples + options.batch_sizes().global_batch};
    }
  }
  void save(const std::filesystem::path& out) {
    save_run(out, trainer.model(), trainer.optimizer(), progress, test_identity());
  }
  void load(const std::filesystem::path& from) {
    progress = load_run(from, trainer.model(), trainer.optimizer(), test_identity()).progress;
  }

  TrainOptions options;
  BatchPlan plan;
  trireme::Trainer trainer;
  Sampler sampler{test_tokens(3000), 8, 7};
  Progress progress;
};

/// Writes 777 into all that is loaded: what is not loaded would show.
inline void scramble(trireme::Trainer& trainer) {
  for (const checkpoint::HeldTensor& held : checkpoint::held_tensors(
           trainer.model().parameters(), trainer.model().buffers(), &trainer.optimizer(), trainer.model().mesh())) {
    Tensor value = held.value;
    kernels(value.device()).fill(value, 777);
  }
}

/// A small model on one or a few ranks.
inline TrainOptions small_options(const std::string& mesh) {
  TrainOptions o;
  o.model.config = {.layers = 2, .heads = 2, .width = 16, .context = 8, .vocab = test_vocab};
  o.mesh.axes = mesh;
  o.batch.global_batch = 8;
  o.batch.micro_batch = 2;
  resolve(o, 0);
  validate(o);
  return o;
}

}  // namespace trireme::testing
