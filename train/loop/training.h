// A training run of any task whose flags have been read; and what can be attached to it from above train/: what shows
// its events, and what disturbs its steps. Programs call train_program() (ops/run/train_program.h), which attaches what
// the flags ask for.
// Read next: train/loop/training.cpp, train/loop/rank_run.cpp; train/loop/task.h, train/step/trainer.h.
#pragma once

#include <memory>

#include "train/events/event_stream.h"
#include "train/loop/task.h"
#include "train/options/options.h"
#include "train/program/rank.h"
#include "train/step/step_observer.h"

namespace trireme {

/// What a program attaches to a run; by default nothing.
class RunAttachments {
 public:
  RunAttachments() = default;
  virtual ~RunAttachments() = default;
  RunAttachments(const RunAttachments&) = delete;
  RunAttachments& operator=(const RunAttachments&) = delete;

  /// In every process, before the data is loaded and ranks start: takes what may be refused, such as a port.
  virtual void acquire(const TrainOptions& /*options*/) {}
  /// On the first rank: adds sinks. `eval_every`: steps between evaluations, 0 if there are none during training.
  virtual void add_sinks(EventStream& /*events*/, const TrainOptions& /*options*/, std::int64_t /*eval_every*/) {}
  /// On every rank: what observes its steps, or null. `rank` and `mesh` outlive the result.
  virtual std::unique_ptr<StepObserver> observer(const TrainOptions& /*options*/, const Rank& /*rank*/,
                                                 const DeviceMesh& /*mesh*/) {
    return nullptr;
  }
};

/// Loads the data, starts the ranks and trains. Returns the exit code. The options of the task: resolved and valid.
int train(Task& task, RunAttachments& attachments);

}  // namespace trireme
