// A GPT that the Trainer of train_gpt trains with --zero, on made-up tokens.
#pragma once

#include <filesystem>

#include "tests/models/trainer.h"
#include "train/gpt_setup.h"
#include "train/trainer.h"
#include "train/validate.h"

namespace trireme::testing {

struct Job {
  std::string mesh = "dp=2";
  std::int64_t zero = 0;
  std::int64_t micro_batches = 1;
  DType dtype = DType::f32;
  double clip = 1.0;
  std::string pipeline = "1f1b";
  std::int64_t global_batch = 12;
  std::int64_t dp_shard = 0;
};

inline TrainOptions options_of(const Job& job) {
  TrainOptions o;
  o.model.config = {.layers = 4, .heads = 2, .width = 22, .context = 8, .vocab = test_vocab};  // 22: uneven shards
  o.mesh.axes = job.mesh;
  o.mesh.pipeline = job.pipeline;
  o.mesh.zero = job.zero;
  if (job.zero == 3) o.mesh.zero_resident = 200;
  if (job.dp_shard > 0) o.mesh.dp_shard = job.dp_shard;
  o.batch.global_batch = job.global_batch;
  o.batch.micro_batches = job.micro_batches;
  o.precision.dtype = job.dtype;
  o.optimizer.clip = job.clip;
  resolve(o, 0);
  validate(o);
  return o;
}

/// A trainer and the samples it has seen.
struct ZeroRun {
  ZeroRun(const TrainOptions& o, const MeshPtr& mesh)
      : options(o), plan(o.batch_sizes().on_rank(mesh->coord(Axis::dp))), trainer(make_gpt(o, mesh), o, 4 << 10) {}

  /// One step; returns the loss before it, the same on every rank.
  double step() {
    const auto next = [&](int microbatch) {
      return sampler.make_batch(plan.first_sample(progress.samples, microbatch), options.batch_sizes().micro_batch);
    };
    const double tokens = static_cast<double>(options.batch_sizes().tokens_per_step(options.model.config.context));
    const double loss = trainer.gradients(next, 1.0 / tokens).pipeline.loss;
    trainer.update(3e-3, trainer.gradient_norm());
    progress = {.steps = progress.steps + 1, .samples = progress.samples + options.batch_sizes().global_batch};
    return pipeline::global_loss(trainer.model().mesh(), loss);
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) step();
  }
  void save(const std::filesystem::path& out) {
    save_run(out, trainer.model(), trainer.optimizer(), progress, test_identity());
  }
  void load(const std::filesystem::path& from) {
    progress = load_run(from, trainer.model(), trainer.optimizer(), test_identity()).progress;
  }

  Gpt& gpt() { return dynamic_cast<Gpt&>(trainer.model()); }

  TrainOptions options;
  BatchPlan plan;
  trireme::Trainer trainer;
  Sampler sampler{test_tokens(3000), 8, 7};
  Progress progress;
};

}  // namespace trireme::testing
