// Checkpointing: when a run is saved, and what is said about it. A save that fails costs nothing but itself: training
// goes on with the checkpoints there are, until three in a row have failed.
// Read next: train/saved_run.h; examples/train_gpt.cpp calls this after every step.
#pragma once

#include <chrono>
#include <functional>

#include "train/options.h"
#include "train/saved_run.h"
#include "train/trainer.h"

namespace trireme {

/// Loads what --resume names, if it names anything that is there, and tells from where the run goes on. Throws
/// ExitCode::usage for a run that has made all its steps (but not with `auto`). Collective.
std::optional<Resumed> resume_run(const TrainOptions& options, Trainer& trainer, const Tokenizer& tokenizer,
                                  const RunIdentity& run, const std::function<void(const std::string&)>& tell);

class Checkpointing {
 public:
  /// `out` of the options is set; `resumed`: what the run goes on from. All arguments must outlive this object. Every
  /// rank's `tell` is called with what there is to say. Collective, as all members are.
  Checkpointing(const TrainOptions& options, Trainer& trainer, const Tokenizer& tokenizer, const RunIdentity& run,
                const std::optional<Resumed>& resumed, std::function<void(const std::string&)> tell);

  /// At a step boundary: says how an earlier save ended, and begins one when it is time. Throws ExitCode::io after the
  /// third failure in a row.
  void after_step(const Progress& progress);
  /// After the last step: waits for what is under way, and saves unless that was this very step. Throws ExitCode::io.
  void finish(const Progress& progress);

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int most_misses = 3;

  bool due(std::int64_t step);
  void begin(Progress progress);
  void report(const checkpoint::Saved& saved, bool last);

  const TrainOptions& options_;
  Trainer& trainer_;
  RunSaver saver_;
  std::function<void(const std::string&)> tell_;
  Clock::time_point last_begin_ = Clock::now();
  std::int64_t saved_step_ = -1;  // the last one committed
  int misses_ = 0;                // in a row
  bool first_step_;               // of a resumed run: it has not been made yet
};

}  // namespace trireme
