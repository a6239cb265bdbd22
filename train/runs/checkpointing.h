// Checkpointing: when a run is saved, by steps, by minutes or by a signal, and what is said about it. A save that fails
// costs nothing but itself: training goes on with the checkpoints there are, until three in a row have failed.
// Read next: train/runs/saved_run.h, train/program/signals.h; train/loop/training.cpp calls this after every step.
#pragma once

#include <chrono>
#include <functional>

#include "core/io.h"
#include "train/options/options.h"
#include "train/runs/saved_run.h"
#include "train/step/trainer.h"

namespace trireme {

/// Loads what --resume names, if it names anything that is there, and tells from where the run goes on; or, with
/// `auto`, that it has made all its steps and there is nothing to do. Throws ExitCode::usage for any other run that has
/// made all its steps. Collective.
std::optional<Resumed> resume_run(const TrainOptions& options, Trainer& trainer, const RunIdentity& run,
                                  const std::function<void(const std::string&)>& tell);

class Checkpointing {
 public:
  /// Without an `out` nothing is ever saved, and signals are answered all the same. `resumed`: what the run goes on
  /// from. All arguments must outlive this object. Every rank's `tell` is called with what there is to say. Collective,
  /// as all members are.
  Checkpointing(const TrainOptions& options, Trainer& trainer, const RunIdentity& run,
                const std::optional<Resumed>& resumed, std::function<void(const std::string&)> tell);
  /// Of a job of one rank, whatever ends it: complete(). With more, some of them may not be there to take part, and a
  /// save takes all: then it is lost, and note_loss() says where that is told.
  ~Checkpointing();
  Checkpointing(const Checkpointing&) = delete;
  Checkpointing& operator=(const Checkpointing&) = delete;

  /// At a step boundary: says how an earlier save ended, and begins one when it is time. False when a signal asks to
  /// leave: then finish() is next. Throws ExitCode::io after the third failure in a row.
  [[nodiscard]] bool after_step(const Progress& progress);
  /// Whether a save has been begun in the run's folder, by this start or an earlier one.
  bool can_roll_back() const { return can_roll_back_; }
  /// Waits for a save that is under way, loads the newest checkpoint of the run's folder that is whole, and returns
  /// where the run then stands. Throws ExitCode::data when there is none.
  Progress roll_back();
  /// Before a failure that every rank has come to: a save that is under way is brought to its end, in --timeout seconds
  /// at most, and told of. Throws nothing: the failure is what to report.
  void complete() noexcept;
  /// After the last step: waits for what is under way, and saves unless that was this very step. Throws ExitCode::io.
  void finish(const Progress& progress);
  /// Where to write, in the end, what became of a save that was under way then; nothing when none was. `note` must
  /// outlive this object.
  void note_loss(std::string& note) { lost_ = &note; }
  /// What the program ends with: ExitCode::retryable when a signal had it leave before its last step.
  int exit_code() const { return static_cast<int>(leaving_ ? ExitCode::retryable : ExitCode::ok); }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int most_misses = 3;

  /// What a step boundary is for; the same on every rank.
  struct Due {
    bool save, asked, leave;  // asked: by a signal
  };
  Due agree(std::int64_t step);
  void begin(Progress progress);
  /// Throws ExitCode::io, on every rank, when the name of `out` has come to mean another folder than at the start.
  void require_own_folder();
  void report(const checkpoint::Saved& saved, bool last);
  std::string loss() const;  // of a save that is under way

  const TrainOptions& options_;
  Trainer& trainer_;
  RunIdentity run_;
  std::optional<RunSaver> saver_;  // with an `out`
  std::optional<FolderMark> out_;  // on rank 0: the folder that is locked
  std::function<void(const std::string&)> tell_;
  std::string* lost_ = nullptr;
  Clock::time_point last_begin_ = Clock::now();
  std::int64_t saved_step_ = -1;  // the last one committed
  double saved_seconds_ = 0;      // and how long that took
  std::int64_t asked_step_ = -1;  // the last one after which a signal asked for a save
  Clock::time_point last_asked_;
  bool leaving_ = false;
  int misses_ = 0;  // in a row
  bool can_roll_back_ = false;
};

}  // namespace trireme
