// ResumeMark: records which checkpoints make runs fail. While a run that --resume auto started from a checkpoint makes
// its first step, a note lies beside the checkpoints (checkpoint::ResumeAttempts). If there are two notes about one
// checkpoint, the next run uses another one. The note is made as late as possible, after everything is compared, loaded
// and started. A run that ends with an error of its own removes it. So the note remains only if a rank was killed,
// crashed or was lost.
// Read next: train/runs/saved_run.h, which chooses; train/loop/rank_run.cpp calls this around every step.
#pragma once

#include "train/events/event_stream.h"
#include "train/launch/ranks.h"
#include "train/options/options.h"
#include "train/runs/saved_run.h"

namespace trireme {

class ResumeMark {
 public:
  /// `resumed`: where the run continues from, if it does. `rank` and `events` must outlive this object.
  ResumeMark(const TrainOptions& options, const std::optional<Resumed>& resumed, Rank& rank, EventStream& events);
  /// Call before every step. Collective.
  void begin_step();
  /// Call after every completed step.
  void step_made();

 private:
  enum class State : std::uint8_t { due, made, done };

  Rank& rank_;
  EventStream& events_;
  std::filesystem::path checkpoint_;
  State state_;
};

}  // namespace trireme
