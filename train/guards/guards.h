// Guards: what stands between a step's gradients and the weights. It judges the step by two numbers that are the same
// on every rank, the loss of the global batch and the norm of the whole gradient, so that all ranks do the same:
//
//   not finite      the step is skipped: nothing changes but the place in the data, and it is made with other samples;
//                   the tensor, rank and samples it came from are looked up and told. Too many in a row end the run.
//   a loss spike    (--spike-threshold) back to the newest checkpoint of the run, and from there on with the samples
//                   after those that led here: train/guards/spike_detector.h
//   otherwise       the update is made; every --check-replicas steps copies of weights and state are compared
//
// Everything that a later start needs to come to the same decisions is in GuardState, which a checkpoint stores.
// Read next: train/guards/guards.cpp, docs/guards.md.
#pragma once

#include <functional>
#include <string>

#include "train/guards/spike_detector.h"
#include "train/runs/checkpointing.h"
#include "train/step/trainer.h"

namespace trireme {

class Guards {
 public:
  /// `checkpoints`: of this run, or null. `tell` is called with what there is to say, `rewound` after the run went back
  /// to an earlier step. All arguments must outlive this object; `progress` is where the run stands, and is kept up to
  /// date.
  Guards(const TrainOptions& options, Trainer& trainer, Checkpointing* checkpoints, Progress& progress,
         std::function<void(const std::string&)> tell, std::function<void(std::int64_t step)> rewound = {});

  /// After Trainer::gradients(): makes the update with this learning rate, and returns true, or does not, says why, and
  /// returns false. Throws ExitCode::numerical after too many skips or rollbacks, and ExitCode::retryable when copies
  /// differ. Collective over the mesh.
  bool step(const Trainer::Pass& pass, double lr);

  double loss() const { return loss_; }  ///< of the last step's global batch
  double norm() const { return norm_; }  ///< of its gradient, before clipping

 private:
  bool judge(const Trainer::Pass& pass, double lr);
  void skip();
  void roll_back();

  const TrainOptions& options_;
  Trainer& trainer_;
  Checkpointing* checkpoints_;
  Progress& progress_;
  std::function<void(const std::string&)> tell_;
  std::function<void(std::int64_t)> rewound_;
  SpikeDetector detector_;
  double loss_ = 0, norm_ = 0;
  std::int64_t skipped_in_a_row_ = 0;
};

}  // namespace trireme
