// Trainer: one rank's part of a training run. It joins the model, what sums its gradients, what updates it, and the
// order of forwards and backwards; train_gpt and parity step through this same class, so that what is checked is what
// trains.
//
//   Trainer trainer(options, mesh);
//   const Trainer::Pass pass = trainer.gradients(batch_of_microbatch, 1.0 / tokens);
//   const double norm = trainer.gradient_norm();
//   trainer.update(lr, norm);
//
// Every member function is collective over the mesh. Read next: train/trainer.cpp, then models/gpt.h,
// parallel/pipeline/executor.h and parallel/grad_sync.h.
#pragma once

#include <functional>
#include <memory>

#include "data/sampler.h"
#include "models/gpt.h"
#include "optim/optimizer.h"
#include "parallel/grad_sync.h"
#include "parallel/pipeline/executor.h"
#include "parallel/zero/zero.h"
#include "train/options.h"

namespace trireme {

class Trainer {
 public:
  /// `options` resolved and with the model's vocabulary.
  Trainer(const TrainOptions& options, std::shared_ptr<const DeviceMesh> mesh,
          std::int64_t bucket_bytes = GradSync::default_bucket_bytes);

  /// This dp rank's micro-batch `index` of the step; called once for each, in order.
  using NextBatch = std::function<Batch(int index)>;
  struct Pass {
    pipeline::StepReport pipeline;
    GradSyncReport sums;
  };
  /// Sets every gradient to that of loss_scale x the sum of token losses of the step's micro-batches, summed over the
  /// mesh. Nothing else is divided anywhere: loss_scale is 1 / (valid targets of the global batch).
  Pass gradients(const NextBatch& next_batch, double loss_scale);

  /// Of the whole model's gradient, without the loss scale; the same bits on every rank.
  double gradient_norm();
  /// This rank's part of every summed gradient: whole, or with ZeRO its shard. After gradients().
  std::vector<optim::StateTensor> gradient_pieces();
  /// Of the step that update() has ended: nothing without experts.
  const std::optional<nn::RoutingReport>& routing() const { return routing_; }
  /// Clips by `norm` and updates the weights, and the biases of routers. False when `norm` is not finite and loss scaling makes up for it: then
  /// nothing has changed but the scale. Throws ExitCode::numerical when it is not finite otherwise.
  bool update(double lr, double norm);

  Gpt& model() { return model_; }
  optim::Optimizer& optimizer() { return *optimizer_; }
  optim::LossScaler& scaler() { return scaler_; }
  const pipeline::Executor& executor() const { return executor_; }

 private:
  TrainOptions options_;
  std::shared_ptr<const DeviceMesh> mesh_;
  BatchSizes batch_;
  Gpt model_;
  std::unique_ptr<GradSync> sync_;  // --zero 0
  std::unique_ptr<Zero> zero_;      // --zero 1, 2, 3
  std::unique_ptr<optim::Optimizer> optimizer_;
  optim::LossScaler scaler_;
  pipeline::Executor executor_;
  std::optional<nn::RoutingReport> routing_;
};

/// What the layers of a model are built with, as the options say.
nn::Build make_build(const TrainOptions& options, std::shared_ptr<const DeviceMesh> mesh);

}  // namespace trireme
