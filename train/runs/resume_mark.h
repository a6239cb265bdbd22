// ResumeMark: which checkpoints runs die of. While a run that --resume auto brought to a checkpoint makes its first
// step, a note of that lies beside the checkpoints (checkpoint::ResumeAttempts); two of them for one checkpoint have
// the next run take another. The note is made as late as it can be, when all is compared, loaded and started, and a run
// that ends with a reason of its own takes it back. So it stays where a rank was killed, crashed or was lost, and
// nowhere else.
// Read next: train/runs/saved_run.h, which chooses; train/loop/training.cpp calls this around every step.
#pragma once

#include "train/launch/ranks.h"
#include "train/options/options.h"
#include "train/runs/saved_run.h"

namespace trireme {

class ResumeMark {
 public:
  /// `resumed`: what the run goes on from, if anything. All arguments must outlive this object. `tell`: as
  /// Checkpointing's.
  ResumeMark(const TrainOptions& options, const std::optional<Resumed>& resumed, Rank& rank,
             std::function<void(const std::string&)> tell);
  /// Before every step. Collective.
  void begin_step();
  /// After every step that was made.
  void step_made();

 private:
  enum class State : std::uint8_t { due, made, done };

  Rank& rank_;
  std::function<void(const std::string&)> tell_;
  std::filesystem::path checkpoint_;
  State state_;
};

}  // namespace trireme
