#include "train/trainer.h"

#include <cmath>

#include "optim/gradient_norm.h"
#include "parallel/verify.h"
#include "train/rank_batch.h"
#include "train/setup.h"

namespace trireme {

nn::Build make_build(const TrainOptions& o, std::shared_ptr<const DeviceMesh> mesh) {
  nn::Parallelism parallelism = o.mesh.parallelism();
  parallelism.recompute = o.precision.recompute_plan();
  return {std::move(mesh), o.precision.dtype, static_cast<std::uint64_t>(o.run.seed), parallelism};
}

Trainer::Trainer(const TrainOptions& o, std::shared_ptr<const DeviceMesh> mesh, std::int64_t bucket_bytes)
    : options_(o),
      mesh_(std::move(mesh)),
      batch_(o.batch_sizes()),
      model_(make_build(o, mesh_), o.model.config),
      sync_(model_.parameters(), *mesh_, bucket_bytes),
      optimizer_(make_optimizer(o.optimizer, model_.parameters())),
      scaler_(o.precision.make_scaler()),
      executor_(pipeline::make_schedule(o.mesh.pipeline, mesh_->size(Axis::pp), static_cast<int>(batch_.micro_batches)),
                mesh_->group(Axis::pp)) {}

Trainer::Pass Trainer::gradients(const NextBatch& next_batch, double loss_scale) {
  sync_.zero();
  model_.run().step_sequences = batch_.global_batch;
  const pipeline::StageFunctions stage = {
      .forward =
          [&](const Tensor& input, int microbatch) {
            const Batch batch = enter_batch(model_, next_batch(microbatch));
            const Tensor hidden = model_.hidden(input, batch.inputs);  // [B, T, D]
            return mesh_->is_last(Axis::pp) ? model_.loss(hidden, batch.targets, loss_scale * scaler_.scale()) : hidden;
          },
      .activation_shape = model_.hidden_shape(batch_.micro_batch, options_.model.config.context),
      .dtype = options_.precision.dtype};
  Pass pass;
  pass.pipeline = executor_.run(stage, [&] { sync_.last_microbatch(); });
  pass.pipeline.loss /= scaler_.scale();
  pass.sums = sync_.finish();
  return pass;
}

double Trainer::gradient_norm() { return optim::gradient_norm(model_.parameters(), *mesh_) / scaler_.scale(); }

bool Trainer::update(double lr, double norm) {
  if (!std::isfinite(norm)) {
    scaler_.overflowed(norm);
    return false;
  }
  optimizer_->step(lr, optim::clip_factor(norm, options_.optimizer.clip) / scaler_.scale());
  scaler_.updated();
  if (mesh_->world().verifies()) verify_copies(model_.parameters(), sync_.tied(), *mesh_);
  return true;
}

}  // namespace trireme
