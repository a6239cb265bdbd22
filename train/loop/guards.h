// Guards: checks that run between a step's gradients and the update of the weights. They use two numbers that are the
// same on every rank, the loss of the global batch and the norm of the whole gradient, so all ranks decide alike:
//
//   not finite      the step is skipped and made again with other samples; only the position in the data changes. The
//                   tensor, rank and samples that caused it are found and reported. Too many in a row end the run.
//   a loss spike    (--spike-threshold) the run goes back to its newest checkpoint, and continues with the samples that
//                   follow those of the spike: train/loop/spike_detector.h
//   otherwise       the update is made; every --check-replicas steps, copies of weights and state are compared
//
// GuardState has everything that a resumed run needs for the same decisions. Checkpoints store it.
// Read next: train/loop/guards.cpp, docs/guards.md.
#pragma once

#include "train/events/event_stream.h"
#include "train/loop/spike_detector.h"
#include "train/runs/checkpointing.h"
#include "train/step/trainer.h"

namespace trireme {

class Guards {
 public:
  /// `checkpoints`: of this run, or null. All arguments must outlive this object. `progress` is the position of the
  /// run; Guards updates it.
  Guards(const TrainOptions& options, Trainer& trainer, Checkpointing* checkpoints, Progress& progress,
         EventStream& events);

  /// After Trainer::gradients(): makes the update with learning rate `lr` and returns true; or reports why not, and
  /// returns false. Throws ExitCode::numerical after too many skips or rollbacks, and ExitCode::retryable if copies
  /// differ. Collective over the mesh.
  bool checked_update(const Trainer::GradientReport& report, double lr);

  double loss() const { return loss_; }  ///< of the last step's global batch
  double norm() const { return norm_; }  ///< of its gradient, before clipping

 private:
  bool update_or_skip(const Trainer::GradientReport& report, double lr);
  void skip();
  void roll_back();

  const TrainOptions& options_;
  Trainer& trainer_;
  Checkpointing* checkpoints_;
  Progress& progress_;
  EventStream& events_;
  SpikeDetector detector_;
  double loss_ = 0, norm_ = 0;
  std::int64_t skipped_in_a_row_ = 0;
};

}  // namespace trireme
