#include "train/checkpointing.h"

namespace trireme {

std::optional<Resumed> resume_run(const TrainOptions& o, Trainer& trainer, const Tokenizer& tokenizer,
                                  const RunIdentity& run, const std::function<void(const std::string&)>& tell) {
  if (o.run.resume == "none") return std::nullopt;
  std::optional<Resumed> resumed;
  if (o.run.resume == "auto") {
    resumed = load_newest_run(o.run.out, trainer.model(), trainer.optimizer(), tokenizer, run, tell, !o.run.dry_run);
    if (!resumed) return std::nullopt;
  } else {
    const std::filesystem::path path = find_saved_run(o.run.resume);
    resumed = Resumed{path, load_run(path, trainer.model(), trainer.optimizer(), tokenizer, run)};
  }
  tell(fmt::format("resuming after step {} from {}", resumed->progress.steps, resumed->path.string()));
  if (resumed->progress.steps >= o.schedule.steps && o.run.resume != "auto")
    fail(ExitCode::usage, "resume", "{} has made {} steps already, and --steps is {}; expected more; raise --steps",
         resumed->path.string(), resumed->progress.steps, o.schedule.steps);
  return resumed;
}

Checkpointing::Checkpointing(const TrainOptions& options, Trainer& trainer, const Tokenizer& tokenizer,
                             const RunIdentity& run, const std::optional<Resumed>& resumed,
                             std::function<void(const std::string&)> tell)
    : options_(options),
      trainer_(trainer),
      saver_(options.run.out, trainer.model(), trainer.optimizer(), tokenizer, run, config_text(options),
             options.run.keep),
      tell_(std::move(tell)),
      first_step_(resumed.has_value()) {
  // A run in its own folder has nothing to save before its first step.
  if (resumed && resumed->path.parent_path() == std::filesystem::path(options.run.out) / "checkpoints")
    saved_step_ = resumed->progress.steps;
}

// Clocks differ: with --checkpoint-minutes, rank 0's decides.
bool Checkpointing::due(std::int64_t step) {
  const RunOptions& o = options_.run;
  if (o.checkpoint_every > 0 && step % o.checkpoint_every == 0) return true;
  if (o.checkpoint_minutes == 0) return false;
  const std::chrono::duration<double, std::ratio<60>> since = Clock::now() - last_begin_;
  const Tensor flag = Tensor::full({1}, since.count() >= o.checkpoint_minutes ? 1 : 0, DType::i64);
  trainer_.model().mesh().world().broadcast(flag, 0).wait();
  return *flag.data<std::int64_t>() != 0;
}

void Checkpointing::begin(Progress progress) {
  if (trainer_.scaler().active()) progress.loss_scale = trainer_.scaler().state();
  last_begin_ = Clock::now();
  saver_.begin(progress);
}

void Checkpointing::report(const checkpoint::Saved& saved, bool last) {
  if (saved.error.empty()) {
    misses_ = 0;
    saved_step_ = saved.step;
    return tell_(saved_line(saved));
  }
  ++misses_;
  if (last || misses_ >= most_misses)
    fail(ExitCode::io, "checkpoint", "step {} could not be saved: {}; {}; earlier checkpoints are as they were",
         saved.step, saved.error, last ? "it was the last one" : fmt::format("{} saves in a row have failed", misses_));
  tell_(
      fmt::format("could not save step {}: {}; training goes on with earlier checkpoints ({} of {} failures in a row "
                  "that end it)",
                  saved.step, saved.error, misses_, most_misses));
}

void Checkpointing::after_step(const Progress& progress) {
  if (std::exchange(first_step_, false) && trainer_.model().mesh().rank() == 0) resume_succeeded(options_.run.out);
  if (const auto saved = saver_.poll()) report(*saved, false);
  if (!due(progress.steps)) return;
  if (const auto saved = saver_.finish()) report(*saved, false);  // slower than the interval: training waits
  begin(progress);
}

void Checkpointing::finish(const Progress& progress) {
  if (std::exchange(first_step_, false) && trainer_.model().mesh().rank() == 0) resume_succeeded(options_.run.out);
  if (const auto saved = saver_.finish()) report(*saved, saved->step == progress.steps);
  if (saved_step_ == progress.steps) return;
  begin(progress);
  report(saver_.finish().value(), true);
}

}  // namespace trireme
