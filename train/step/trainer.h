// Trainer: one rank's part of a training run, of any Model. It joins the model, the sums of its gradients over ranks,
// the optimizer, and the schedule of forwards and backwards. train_gpt and parity both take their steps here, so what
// parity checks is what trains.
//
//   Trainer trainer(std::make_unique<Gpt>(make_build(options, mesh), config), options);
//   const Trainer::Pass pass = trainer.gradients(batch_of_microbatch, 1.0 / tokens);
//   const double norm = trainer.gradient_norm();
//   trainer.update(lr, norm);
//
// Every member function is collective over the mesh. Read next: train/step/trainer.cpp, then models/model.h,
// parallel/pipeline/executor.h and parallel/grad_sync.h.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "data/batch.h"
#include "models/model.h"
#include "optim/optimizer.h"
#include "parallel/pipeline/executor.h"
#include "parallel/zero/zero.h"
#include "train/options/options.h"
#include "train/step/gradient_watch.h"

namespace trireme {

class Trainer {
 public:
  /// `model`: made with make_build(options, mesh), and with a plan of options.mesh.stages() stages; ExitCode::usage
  /// when it has another number of them. `options`: resolved; those of data and model are not read.
  Trainer(std::unique_ptr<Model> model, const TrainOptions& options,
          std::int64_t bucket_bytes = GradSync::default_bucket_bytes);

  /// This dp rank's micro-batch `index` of the step; called once for each, in order.
  using NextBatch = std::function<Batch(int index)>;
  struct Pass {
    pipeline::StepReport pipeline;
    GradSyncReport sums;
  };
  /// Sets every gradient to that of loss_scale x the sum of the losses of the step's micro-batches, summed over the
  /// mesh. Nothing else is divided anywhere: loss_scale is 1 / (valid targets of the global batch).
  Pass gradients(const NextBatch& next_batch, double loss_scale);

  /// Of the whole model's gradient, without the loss scale; the same bits on every rank.
  double gradient_norm();
  /// This rank's part of every summed gradient: whole, or with ZeRO its shard. After gradients().
  std::vector<optim::StateTensor> gradient_pieces();
  /// Of the step that update() has ended: nothing without experts.
  const std::optional<nn::RoutingReport>& routing() const { return routing_; }
  /// After gradients() whose loss or norm is not finite: which tensor, on which ranks, from which samples, and what a
  /// person can do about it. Computes the step's gradients once more and checks each of them. The same texts on every
  /// rank.
  struct Origin {
    std::string what, remedy;
  };
  Origin find_non_finite();
  /// Ends a step without an update: weights, moments and counters are as they were.
  void skip();

  /// Throws ExitCode::retryable, naming tensor and rank, when copies of weights, of the optimizer's state or of buffers
  /// differ, or what has no copy has changed since it was written. Does nothing with --check-replicas 0. With `turn`,
  /// the number of this check, state on a GPU, which has to be copied to the host, takes turns: an eighth in each
  /// check.
  void check_replicas(std::optional<std::int64_t> turn = {});
  /// Before a save: throws ExitCode::numerical, naming it, when a weight of this rank is not finite. Settles, so
  /// collective.
  void require_finite_weights();
  /// To be called when weights were written, other than by update(), after the first gradients(): packed weights and
  /// seals are of the old ones.
  void loaded();

  /// Clips by `norm` and updates the weights, and the biases of routers. False when `norm` is not finite and a loss
  /// scale may be the cause: then nothing has changed but the scale. Throws ExitCode::numerical when it is not finite
  /// otherwise.
  bool update(double lr, double norm);

  Model& model() { return *model_; }
  GradientWatch& watch() { return watch_; }
  optim::Optimizer& optimizer() { return *optimizer_; }
  optim::LossScaler& scaler() { return scaler_; }
  const pipeline::Executor& executor() const { return executor_; }

 private:
  using Look = GradientWatch::Look;
  Pass run_pass(const NextBatch& next_batch, Look look);
  bool sums_gradients() const;  // over any ranks
  Look first_look() const;
  NonFinite non_finite_piece();
  void finish_routing(bool applied);
  std::vector<Copied> copies(std::optional<std::int64_t> turn = {});

  TrainOptions options_;
  BatchSizes batch_;
  std::unique_ptr<Model> model_;
  const DeviceMesh& mesh_;          // the model's
  bool ties_stages_, has_routers_;  // whether the whole model does, on any rank
  GradientWatch watch_;             // before what sums gradients: it looks first
  std::unique_ptr<DataParallel> gradients_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  optim::LossScaler scaler_;
  pipeline::Executor executor_;
  std::optional<nn::RoutingReport> routing_;
  std::vector<Batch> step_;  // the micro-batches of the step, should it have to be computed again
  double loss_scale_ = 1;    // of the step: without the scaler's
};

}  // namespace trireme
