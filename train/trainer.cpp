#include "train/trainer.h"

#include <cmath>
#include <map>

#include "optim/gradient_norm.h"
#include "parallel/verify.h"
#include "train/rank_batch.h"
#include "train/setup.h"

namespace trireme {
namespace {

ZeroOptions zero_options(const MeshOptions& o, std::int64_t bucket_bytes) {
  return {.stage = static_cast<int>(o.zero),
          .prefetch = static_cast<int>(o.zero_prefetch.value_or(MeshOptions::default_prefetch)),
          .resident_bytes = o.zero_resident.value_or(MeshOptions::default_resident),
          .shard_ranks = static_cast<int>(o.dp_shard.value_or(0)),
          .bucket_bytes = bucket_bytes};
}

/// The batches of a step: made once each and in order, kept while stages of this rank still ask for them.
class StepBatches {
 public:
  StepBatches(const Trainer::NextBatch& next, int stages) : next_(next), stages_(stages) {}

  /// Each stage of the rank asks once for each micro-batch.
  Batch take(int microbatch) {
    for (; made_ <= microbatch; ++made_) kept_[made_] = {next_(made_), stages_};
    const auto found = kept_.find(microbatch);
    Batch batch = found->second.batch;
    if (--found->second.takers == 0) kept_.erase(found);
    return batch;
  }

 private:
  struct Kept {
    Batch batch;
    int takers;
  };
  const Trainer::NextBatch& next_;
  int stages_, made_ = 0;
  std::map<int, Kept> kept_;  // by micro-batch
};

}  // namespace

nn::Build make_build(const TrainOptions& o, std::shared_ptr<const DeviceMesh> mesh) {
  nn::Parallelism parallelism = o.mesh.parallelism();
  parallelism.recompute = o.precision.recompute_plan();
  return {std::move(mesh), o.precision.dtype, static_cast<std::uint64_t>(o.run.seed), parallelism,
          o.precision.tensor_device()};
}

Trainer::Trainer(const TrainOptions& o, std::shared_ptr<const DeviceMesh> mesh, std::int64_t bucket_bytes)
    : options_(o),
      mesh_(std::move(mesh)),
      batch_(o.batch_sizes()),
      model_(make_build(o, mesh_), o.model.config, o.stage_plan()),
      sync_(o.mesh.zero == 0 ? std::make_unique<GradSync>(model_.parameters(), *mesh_, bucket_bytes) : nullptr),
      zero_(o.mesh.zero == 0 ? nullptr
                             : std::make_unique<Zero>(model_.parameters(), model_.units(), *mesh_,
                                                      zero_options(o.mesh, bucket_bytes))),
      optimizer_(make_optimizer(o.optimizer, zero_ ? zero_->shards() : optim::whole_shards(model_.parameters()))),
      scaler_(o.precision.make_scaler()),
      executor_(pipeline::make_schedule(o.mesh.pipeline, mesh_->size(Axis::pp), static_cast<int>(batch_.micro_batches)),
                mesh_->group(Axis::pp)) {
  if (zero_) zero_->attach(*optimizer_);
}

Trainer::Pass Trainer::gradients(const NextBatch& next_batch, double loss_scale) {
  sync_ ? sync_->zero() : zero_->zero(static_cast<int>(batch_.micro_batches));
  model_.run().step_sequences = batch_.global_batch;
  model_.run().loss_scale = scaler_.scale();
  StepBatches batches(next_batch, model_.chunks());
  const pipeline::StageFunctions stage = {
      .forward =
          [&](int s, const Tensor& input, int microbatch) {
            const Batch batch = enter_batch(model_, batches.take(microbatch));
            const Tensor hidden = model_.hidden(s, input, batch.inputs);  // [B, T, D]
            return model_.is_last_stage(s) ? model_.loss(hidden, batch.targets, loss_scale * scaler_.scale()) : hidden;
          },
      .activation_shape = model_.hidden_shape(batch_.micro_batch, options_.model.config.context),
      .dtype = options_.precision.dtype,
      .device = model_.device()};
  Pass pass;
  pass.pipeline = executor_.run(stage, [&](int, int microbatch) {
    const bool last = microbatch + 1 == batch_.micro_batches;
    sync_ ? sync_->last_microbatch(last) : zero_->last_microbatch(last);
  });
  pass.pipeline.loss /= scaler_.scale();
  pass.sums = sync_ ? sync_->finish() : zero_->finish();
  return pass;
}

double Trainer::gradient_norm() {
  const double norm = zero_ ? zero_->gradient_norm() : optim::gradient_norm(model_.parameters(), *mesh_);
  return norm / scaler_.scale();
}

std::vector<optim::StateTensor> Trainer::gradient_pieces() {
  std::vector<optim::StateTensor> pieces;
  for (std::size_t i = 0; i < model_.parameters().size(); ++i) {
    const nn::Parameter& parameter = *model_.parameters()[i];
    pieces.push_back(
        {"gradient", &parameter, zero_ ? zero_->gradient(i) : parameter.grad(), zero_ ? zero_->shards()[i] : nullptr});
  }
  return pieces;
}

bool Trainer::update(double lr, double norm) {
  if (options_.model.config.experts.count > 0)
    routing_ = model_.routing().finish(*mesh_, options_.mesh.parallelism().sequence, std::isfinite(norm));
  if (!std::isfinite(norm)) {
    scaler_.overflowed(norm);
    return false;
  }
  const double factor = optim::clip_factor(norm, options_.optimizer.clip) / scaler_.scale();
  zero_ ? zero_->update(*optimizer_, lr, factor) : optimizer_->step(lr, factor);
  scaler_.updated();
  if (mesh_->world().verifies()) zero_ ? zero_->verify() : verify_copies(model_.parameters(), sync_->tied(), *mesh_);
  return true;
}

}  // namespace trireme
