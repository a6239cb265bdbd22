// Trainer: one rank's part of training any Model. It connects the model, gradient synchronisation, the optimizer, and
// the pipeline schedule. train_gpt and parity both use it for their steps, so parity checks the code that trains.
//
//   Trainer trainer(std::make_unique<MyModel>(make_build(options, mesh), config), options);
//   const Trainer::GradientReport report = trainer.gradients(batch_of_microbatch, 1.0 / tokens);
//   StepNumbers numbers = trainer.numbers(report);          // on a GPU, queued
//   trainer.update(lr, numbers.norm());                   // waits for the number
//
// Every member function is collective over the mesh. Read next: train/step/trainer.cpp and trainer_checks.cpp, then
// models/model.h, parallel/pipeline/executor.h and parallel/data_parallel/grad_sync.h.
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
#include "train/step/step_numbers.h"
#include "train/step/step_observer.h"

namespace trireme {

/// One rank's part of training a Model: gradients, their sums, the update.
/// @snippet training_test.cpp trainer
class Trainer {
 public:
  /// `model`: made with make_build(options, mesh) and a plan of options.mesh.stages() stages. Throws ExitCode::usage
  /// for another number of stages. `options`: after resolve(); options of data and model are not used.
  Trainer(std::unique_ptr<Model> model, const TrainOptions& options,
          std::int64_t bucket_bytes = GradSync::default_bucket_bytes);

  /// From now on, `observer` is called in every step. It must outlive this object.
  void observe(StepObserver& observer) { observers_.push_back(&observer); }
  const std::vector<StepObserver*>& observers() const { return observers_; }

  /// Returns this dp rank's micro-batch `index` of the step. Called once for each index, in order.
  using NextBatch = std::function<Batch(int index)>;
  /// What gradients() did.
  struct GradientReport {
    pipeline::StepReport pipeline;  ///< its forward_seconds are without fetch_seconds
    GradSyncReport sums;
    double fetch_seconds = 0;  ///< in NextBatch
  };
  /// Sets every gradient to that of `per_target` x the sum of the losses of the step's micro-batches, summed over the
  /// mesh; per_target is 1 / (targets of the global batch). Nothing else divides. In f16 gradients are also multiplied
  /// by scaler().scale(), until the update. The first call throws ExitCode::desync if ranks have other samples than
  /// they should: models/same_batch.h.
  GradientReport gradients(const NextBatch& next_batch, double per_target);

  /// The loss of the global batch, and the norm of the whole model's gradient, without the scaler's factor. The same
  /// bits on every rank. On a GPU the work for them is queued, and the host waits when it reads one.
  StepNumbers numbers(const GradientReport& report);
  double gradient_norm();  ///< that norm alone; waits
  /// This rank's part of every summed gradient, with the scaler's factor: the whole gradient, or with ZeRO its shard.
  /// After gradients().
  std::vector<StateTensor> gradient_pieces();
  /// The routing of the step that update() has completed; nothing without experts.
  const std::optional<nn::RoutingReport>& routing() const { return routing_; }
  /// What find_non_finite() returns: which tensor on which ranks from which samples, and what a user can do about it.
  struct Origin {
    std::string what, remedy;
  };
  /// After gradients() with a non-finite loss or norm. Computes the step's gradients once more and checks each of them.
  /// Returns the same texts on every rank.
  Origin find_non_finite();
  /// Ends a step without an update. Weights, moments and counters stay the same.
  void skip();
  /// Queues the update before the host knows the numbers: the GPU clips by the norm, and leaves weights and moments as
  /// they are if a number is not finite. Then call update() or skip() as usual. Does nothing if the update is made on
  /// the host.
  void queue_update(double lr, const StepNumbers& numbers);

  /// Throws ExitCode::retryable, naming tensor and rank, if replicas of weights, optimizer state or buffers differ, or
  /// if the checksum of a shard without replicas is wrong. Does nothing with --check-replicas 0. `turn` is the number
  /// of this check. With `turn`, only an eighth of the optimizer state on a GPU is checked, because it has to be copied
  /// to the host; each check takes another eighth.
  void check_replicas(std::optional<std::int64_t> turn = {});
  /// Before a save: throws ExitCode::numerical, naming the weight, if a weight of this rank is not finite. Collective:
  /// first waits for weights that the optimizer still communicates.
  void require_finite_weights();
  /// Call when weights were written, other than by update(), after the first gradients(): the checksums are of the old
  /// values.
  void weights_changed();

  /// Clips by `norm` and updates the weights, unless queue_update() has, and the biases of routers. If `norm` is not
  /// finite and a loss scale may be the cause, returns false; only the scale has changed. Throws ExitCode::numerical if
  /// `norm` is not finite for another reason.
  bool update(double lr, double norm);

  Model& model() { return *model_; }                     ///< this rank's part
  GradientWatch& gradient_watch() { return watch_; }     ///< which gradients are checked
  optim::Optimizer& optimizer() { return *optimizer_; }  ///< of this rank's shards
  optim::LossScaler& scaler() { return scaler_; }        ///< the loss scale
  const pipeline::Executor& executor() const { return executor_; }

 private:
  using CheckTime = GradientWatch::CheckTime;
  GradientReport run_pass(CheckTime check_time);
  Tensor forward(int stage, const Tensor& input, int microbatch);
  void before_backward(int stage, int microbatch);
  const Batch& batch(int microbatch);
  bool sums_gradients() const;  // over any ranks
  CheckTime first_check() const;
  NonFinite non_finite_piece();
  void finish_routing(bool applied);
  void before_update();
  std::vector<ReplicatedTensor> copies(std::optional<std::int64_t> turn = {});

  TrainOptions options_;
  BatchSizes batch_;
  std::unique_ptr<Model> model_;
  const DeviceMesh& mesh_;          // the mesh of the model
  bool ties_stages_, has_routers_;  // true if they exist anywhere in the model, on any rank
  GradientWatch watch_;             // before gradients_: its hooks must run first
  std::unique_ptr<DataParallel> gradients_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  optim::LossScaler scaler_;
  pipeline::Executor executor_;
  std::optional<nn::RoutingReport> routing_;
  std::vector<StepObserver*> observers_;
  const NextBatch* next_batch_ = nullptr;  // within gradients()
  std::vector<Batch> batches_;             // the micro-batches of the step, which may have to be computed again
  double per_target_ = 1;                  // of the step
  double fetch_seconds_ = 0;               // of the step
  bool compared_batches_ = false;
  bool queued_ = false;  // queue_update() has counted this step's update
};

}  // namespace trireme
