// RankRun: one rank's run, from the plan to the last checkpoint. All ranks take the same branches, because almost
// everything is collective. What happens is emitted as events; the first rank shows and stores them.
// Read next: train/loop/rank_run.cpp, from the top; train/events/event.h.
#pragma once

#include <memory>
#include <optional>

#include "data/prefetch.h"
#include "train/events/event_stream.h"
#include "train/launch/ranks.h"
#include "train/loop/guards.h"
#include "train/loop/training.h"
#include "train/program/timer.h"
#include "train/runs/checkpointing.h"
#include "train/runs/run_folder.h"
#include "train/step/trainer.h"

namespace trireme {

/// Memory of rank 0, as a dry run found it; without it, why there is none.
struct PredictedMemory {
  std::optional<RankMemory> rank;
  std::string why;
};

class RankRun {
 public:
  /// All arguments must outlive this object.
  RankRun(Task& task, RunFolder& folder, RunAttachments& attachments, Rank& rank, const PredictedMemory& memory);

  /// Trains to the last step, or until a signal asks to stop.
  void run();

 private:
  static std::shared_ptr<const DeviceMesh> make_mesh(Rank& rank, const MeshShape& shape);
  std::unique_ptr<Model> make_model() const;
  template <class F>
  auto timed(Phase phase, const F& f) {
    const auto scope = times_.time(phase);
    return f();
  }

  RunPlanned plan();
  std::vector<MemoryRow> memory_rows();  // predicted beside measured
  std::int64_t count_parameters();       // of the whole model, padding included; collective
  std::optional<Resumed> resume();
  void begin();
  void train(const std::optional<Resumed>& resumed);
  Trainer::GradientReport gradients(Loader& loader);
  void report_step(double lr, const Guards& guards, Checkpointing& checkpoints);
  void log(double lr, const Guards& guards, bool evaluated);
  template <class F>
  auto with_shown_weights(const F& f);
  std::optional<double> evaluate();
  void sample();

  // In the order in which they are made.
  Task& task_;  // changed only by begin(): the folder of --out auto
  const TrainOptions& options_;
  RunFolder& folder_;
  Rank& rank_;
  const PredictedMemory& memory_;
  std::shared_ptr<const DeviceMesh> mesh_;
  std::string checkpoint_;  // that the run resumes from, as it was found at first; empty: it begins
  Trainer trainer_;
  std::unique_ptr<StepObserver> observer_;  // may be null
  EventStream events_;                      // without sinks on all ranks but the first
  BatchSizes batch_;
  std::shared_ptr<const DataSource> source_;  // of training, from train() on
  std::int64_t targets_per_step_;             // if source_ does not count them
  RunIdentity identity_;
  std::int64_t eval_every_ = 0;  // steps; 0: only before the first and after the last step
  Progress progress_;
  PhaseTimes times_;
  double stepping_ = 0;               // times_.seconds_in_steps() after the last step
  bool cut_short_ = false;            // the last evaluation, by a signal that asks to leave
  std::int64_t logged_ = 0;           // the last step that was logged
  CommunicationTimes communication_;  // of the steps since then
};

}  // namespace trireme
