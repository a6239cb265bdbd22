// Checkpointing: saves a run by steps, by minutes, by a signal, or because its validation loss is the lowest so far,
// and reports it. If a save fails, training continues with the earlier checkpoints; after three failures in a row, the
// run ends.
// Read next: train/runs/saved_run.h, train/program/signals.h; train/loop/rank_run.cpp calls this after every step.
#pragma once

#include <chrono>
#include <functional>

#include "core/io.h"
#include "train/events/event_stream.h"
#include "train/options/options.h"
#include "train/runs/saved_run.h"
#include "train/step/trainer.h"

namespace trireme {

/// Loads the checkpoint that --resume names, if there is one, and says where the run continues. With `auto`, a run
/// that has already made all its steps is reported as having nothing to do; otherwise that is an error
/// (ExitCode::usage). Collective.
std::optional<Resumed> resume_run(const TrainOptions& options, Trainer& trainer, const RunIdentity& run,
                                  EventStream& events);

class Checkpointing {
 public:
  /// Without --out, nothing is ever saved, but signals are still handled. `resumed`: where the run continues from.
  /// `options`, `trainer` and `events` must outlive this object. Collective, like all members.
  Checkpointing(const TrainOptions& options, Trainer& trainer, const RunIdentity& run,
                const std::optional<Resumed>& resumed, EventStream& events);
  /// With one rank: calls complete(). With more ranks, some may be missing, and a save needs all of them. The save is
  /// then lost, and report_unfinished_save() tells where to report it.
  ~Checkpointing();
  Checkpointing(const Checkpointing&) = delete;
  Checkpointing& operator=(const Checkpointing&) = delete;

  /// Call at a step boundary. Reports how an earlier save ended, and begins a save if one is due. Returns false if a
  /// signal asked to leave; call finish() then. Throws ExitCode::io after the third failure in a row.
  [[nodiscard]] bool after_step(const Progress& progress);
  /// The validation loss after a step, which is about to be passed to after_step() or finish(). With --keep-best, the
  /// step is then saved if the loss is the lowest so far.
  void note_validation(std::int64_t step, double loss) { validated_ = {step, loss}; }
  /// The validation loss before the first step of this start, after `step` steps: the checkpoint of that step, if the
  /// run resumed from one in its own folder, may be the best.
  void note_validation_at_start(std::int64_t step, double loss);
  /// From now on, each save is awaited, and then `f` is called with the checkpoint's folder: it writes there what other
  /// programs read, and returns a message. It is collective. If it throws ExitCode::io, that is a warning.
  void export_with(std::function<std::string(const std::filesystem::path& checkpoint)> f) { export_ = std::move(f); }
  /// True if this start, or an earlier one, has begun a save in the run's folder.
  bool can_roll_back() const { return can_roll_back_; }
  /// Waits for a pending save, loads the newest valid checkpoint in the run's folder, and returns the progress of that
  /// checkpoint. Throws ExitCode::data if there is none.
  Progress roll_back();
  /// Call before a failure that occurs on every rank: completes a pending save, in at most --timeout seconds, and
  /// reports it. Never throws, so that the failure itself is reported.
  void complete() noexcept;
  /// After the last step: waits for a pending save, and saves if this step is not saved yet. Throws ExitCode::io.
  void finish(const Progress& progress);
  /// If a save is pending when this object is destroyed, its state is written to `text`. `text` must outlive this
  /// object.
  void report_unfinished_save(std::string& text) { unfinished_save_text_ = &text; }
  /// The program's exit code: ExitCode::retryable if a signal made it leave before its last step.
  int exit_code() const { return static_cast<int>(leaving_ ? ExitCode::retryable : ExitCode::ok); }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int most_misses = 3;

  /// What to do at a step boundary; the same on every rank.
  struct Due {
    bool save, asked, leave;  // asked: by a signal
    bool only_best;           // the only reason to save is the validation loss
  };
  Due agree(std::int64_t step);
  void begin(Progress progress, bool only_best);
  bool beats_best(std::int64_t step) const;
  template <class F>
  void change_best(const F& change);
  void emit_saved(const checkpoint::Saved& saved, bool leaving);
  std::optional<checkpoint::Saved> wait_for_save();
  /// Throws ExitCode::io on every rank if the path `out` now refers to a different folder than at the start.
  void require_own_folder();
  void report(const checkpoint::Saved& saved, bool last);
  void export_saved(const checkpoint::Saved& saved, bool last);
  std::string unfinished_save() const;  // what happened to a pending save, for people

  const TrainOptions& options_;
  Trainer& trainer_;
  RunIdentity run_;
  std::optional<RunSaver> saver_;  // if there is an `out`
  std::optional<FolderMark> out_;  // on rank 0: the locked folder
  std::filesystem::path checkpoints_;
  EventStream& events_;
  std::function<std::string(const std::filesystem::path&)> export_;  // if there is one
  std::string* unfinished_save_text_ = nullptr;
  Clock::time_point last_begin_ = Clock::now();
  std::int64_t saved_step_ = -1;  // the last committed step
  double saved_seconds_ = 0;      // the time that save took
  std::int64_t asked_step_ = -1;  // the last step at which a signal asked for a save
  Clock::time_point last_asked_;
  bool leaving_ = false;
  int misses_ = 0;                                    // failed saves in a row
  std::pair<std::int64_t, double> validated_{-1, 0};  // the newest validation loss, and its step
  std::optional<double> saving_loss_;                 // that of the newest save, if it is known
  std::int64_t best_step_ = -1;                       // on rank 0: the last step that was the best so far when saved
  bool can_roll_back_ = false;
};

}  // namespace trireme
