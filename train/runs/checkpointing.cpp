#include "train/runs/checkpointing.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "parallel/comm/texts.h"
#include "train/options/flags.h"
#include "train/program/signals.h"
#include "train/runs/origin.h"
#include "train/step/setup.h"

namespace trireme {

namespace {

/// The schedule with which the run was saved, but with this start's --lr. Nothing if it cannot be read.
std::optional<ScheduleOptions> saved_schedule(const Resumed& resumed, double lr) {
  const auto saved = nlohmann::json::parse(resumed.configuration, nullptr, false);
  if (!saved.is_object()) return std::nullopt;
  ScheduleOptions before;
  Flags flags("train_gpt", "");
  declare_schedule(flags, before);
  std::vector<std::string> arguments;
  for (const char* name : {"steps", "lr-schedule", "min-lr", "warmup-steps", "warmup-lr", "decay-steps"})
    if (const auto value = saved.find(name); value != saved.end() && !value->is_null()) {
      arguments.push_back(fmt::format("--{}", name));
      arguments.push_back(value->is_string() ? value->get<std::string>() : value->dump());
    }
  try {
    flags.parse(arguments);
  } catch (const Error&) { return std::nullopt; }
  before.lr = lr;
  return before;
}

/// A message if the learning rate jumps because the schedule is another one than the run had. A larger --steps is
/// enough: it stretches a schedule that ends with the run.
std::string jump_of_rate(const ScheduleOptions& now, const Resumed& resumed) {
  const std::optional<ScheduleOptions> before = saved_schedule(resumed, now.lr);
  const std::int64_t made = resumed.progress.steps;
  if (!before || before->steps < made) return {};
  const double was = make_lr_schedule(*before).at(made), is = make_lr_schedule(now).at(made);
  if (std::abs(is - was) <= 0.01 * was) return {};
  const std::string rates = fmt::format("the learning rate goes on with {:.2e} instead of {:.2e}", is, was);
  ScheduleOptions longer = *before;
  longer.steps = now.steps;
  if (make_lr_schedule(longer).at(made) != is)
    return fmt::format("the schedule is not the one that the run had ({} after {} steps of warm-up, of {} steps): {}",
                       optim::name(before->lr_schedule), before->warmup_steps, before->steps, rates);
  const std::string text =
      fmt::format("--steps is {} now and was {}: the schedule is stretched, and {}", now.steps, before->steps, rates);
  return now.lr_schedule == optim::LrShape::wsd ? text
                                                : fmt::format("{}; --decay-steps {} keeps it", text, before->steps);
}

}  // namespace

std::optional<Resumed> resume_run(const TrainOptions& o, Trainer& trainer, const RunIdentity& run,
                                  EventStream& events) {
  if (o.run.resume == "none") return std::nullopt;
  std::optional<Resumed> resumed;
  if (o.run.resume == "auto") {
    resumed = load_newest_run(o.run.out, trainer.model(), trainer.optimizer(), run,
                              [&](const std::string& skipped) { events.warn(skipped); });
    if (!resumed) return std::nullopt;
  } else {
    resumed = load_run(o.run.resume, trainer.model(), trainer.optimizer(), run);
    if (begins_elsewhere(o.run.resume, o.run.out)) resumed->progress.origin = o.run.resume;
  }
  const std::int64_t made = resumed->progress.steps, wanted = o.schedule.steps;
  if (made >= wanted && o.run.resume == "auto") {
    events.warn(fmt::format("nothing to do: {} has made {} steps, and --steps is {}; raise --steps to go on",
                            resumed->path.string(), made, wanted));
    return resumed;
  }
  events.say(fmt::format("resuming after step {} from {}", made, resumed->path.string()));
  if (made >= wanted)
    fail(ExitCode::usage, "resume", "{} has made {} steps already, and --steps is {}; expected more; raise --steps",
         resumed->path.string(), made, wanted);
  if (!resumed->dropped.empty()) events.warn(resumed->dropped);
  if (const std::string jump = jump_of_rate(o.schedule, *resumed); !jump.empty()) events.warn(jump);
  return resumed;
}

Checkpointing::Checkpointing(const TrainOptions& options, Trainer& trainer, const RunIdentity& run,
                             const std::optional<Resumed>& resumed, EventStream& events)
    : options_(options),
      trainer_(trainer),
      run_(run),
      checkpoints_(std::filesystem::path(options.run.out) / "checkpoints"),
      events_(events) {
  if (options.run.out.empty()) return;
  std::error_code unknown;
  if (trainer.model().mesh().rank() == 0 && std::filesystem::is_directory(options.run.out, unknown))
    out_.emplace(options.run.out);
  saver_.emplace(options.run.out, trainer.model(), trainer.optimizer(), run, options.run.config, options.run.keep);
  saver_->require_possible();
  // A run that resumes in its own folder has nothing to save before its first step.
  if (resumed && std::filesystem::weakly_canonical(resumed->path.parent_path(), unknown) ==
                     std::filesystem::weakly_canonical(checkpoints_, unknown))
    saved_step_ = resumed->progress.steps;
  can_roll_back_ = saved_step_ >= 0;
  note_saved(saved_step_);
  if (can_roll_back_) change_best([&] { checkpoint::Best::go_back(checkpoints_, saved_step_); });
}

// ---- the best checkpoint --------------------------------------------------------------------------------------------

/// On rank 0, which alone reads best.json: whether the validation loss after `step` is lower than that of every earlier
/// checkpoint, also of one that is being saved. On other ranks false.
bool Checkpointing::beats_best(std::int64_t step) const {
  if (!saver_ || !options_.run.keep_best || validated_.first != step || trainer_.model().mesh().rank() != 0)
    return false;
  const double loss = validated_.second;
  if (saver_->busy() && saving_loss_ && *saving_loss_ <= loss) return false;
  const std::optional<checkpoint::Best> best = checkpoint::Best::read(checkpoints_);
  return !best || loss < best->loss;
}

/// Changes best.json on rank 0. A full disk may have no room for it and still enough for the rest.
template <class F>
void Checkpointing::change_best(const F& change) {
  if (trainer_.model().mesh().rank() != 0) return;
  try {
    change();
  } catch (const Error& error) {
    events_.warn(fmt::format("{}; training goes on, and the checkpoint that OUT/best names may not be the best one",
                             error.reason()));
  }
}

void Checkpointing::note_validation_at_start(std::int64_t step, double loss) {
  if (!saver_ || !options_.run.keep_best || saved_step_ != step || !std::isfinite(loss)) return;
  change_best([&] { checkpoint::Best::update(checkpoints_, step, loss); });
}

// ---- when to save ---------------------------------------------------------------------------------------------------

// A signal reaches ranks at different steps, and clocks differ; for --checkpoint-minutes, rank 0's clock decides, and
// rank 0 decides whether a validation loss is the lowest. So every rank adds its requests to one number, and all ranks
// read the same sum.
Checkpointing::Due Checkpointing::agree(std::int64_t step) {
  constexpr std::int64_t leave = 1, save = leave << 20, minutes = save << 20, best = minutes << 1;  // < 2^20 ranks
  const RunOptions& o = options_.run;
  const DeviceMesh& mesh = trainer_.model().mesh();
  const SignalsNoted noted = signals_noted();
  const std::chrono::duration<double, std::ratio<60>> since = Clock::now() - last_begin_;
  // One signal to all ranks may reach some before a step boundary and some after it. Signals within a second are one.
  const bool again = asked_step_ >= 0 && noted.save && *noted.save - last_asked_ < std::chrono::seconds(1);
  const bool late = mesh.rank() == 0 && o.checkpoint_minutes > 0 && since.count() >= o.checkpoint_minutes;
  const std::int64_t mine = (noted.leave ? leave : 0) + (noted.save && !again ? save : 0) + (late ? minutes : 0) +
                            (beats_best(step) ? best : 0);
  const Tensor sum = Tensor::from(std::span(&mine, 1), {1});
  mesh.world().all_reduce(sum).wait();
  const std::int64_t all = *sum.data<std::int64_t>();
  const bool asked = all % minutes >= save;
  if (asked) {
    asked_step_ = step;
    last_asked_ = Clock::now();
  }
  const bool by_steps = o.checkpoint_every > 0 && step % o.checkpoint_every == 0;
  const bool wanted = asked || by_steps || all % best >= minutes, is_best = all >= best;
  return {.save = wanted || is_best, .asked = asked, .leave = all % save != 0, .only_best = is_best && !wanted};
}

// If the folder was moved or removed, another run may have begun in one of the same name. A save that is under way when
// that happens fails, because the run's folder is not created again.
void Checkpointing::require_own_folder() {
  fail_together(trainer_.model().mesh().world(), [&] {
    if (out_ && !out_->still_there())
      fail(ExitCode::io, "out",
           "{} is no longer the folder in which this run began: it was moved, removed or replaced; expected it to stay "
           "while the run writes there; start again with --resume auto and the --out that it has now",
           out_->path().string());
  });
}

void Checkpointing::begin(Progress progress, bool only_best) {
  require_own_folder();
  if (trainer_.scaler().active()) progress.loss_scale = trainer_.scaler().state();
  trainer_.check_replicas();  // do not save wrong values
  trainer_.require_finite_weights();
  last_begin_ = Clock::now();
  can_roll_back_ = true;
  if (beats_best(progress.steps)) best_step_ = progress.steps;
  saving_loss_.reset();
  std::optional<checkpoint::ValidationLoss> validation_loss;
  if (options_.run.keep_best && validated_.first == progress.steps) {
    saving_loss_ = validated_.second;
    validation_loss = {.loss = validated_.second, .only_best = only_best};
  }
  saver_->begin(progress, validation_loss);
  for (StepObserver* observer : trainer_.observers()) observer->save_begun();
}

void Checkpointing::emit_saved(const checkpoint::Saved& saved, bool leaving) {
  Saved event = saved_event(saved, saved.step == best_step_);
  event.asked = saved.step == asked_step_ && !leaving_;
  event.leaving = leaving;
  events_.emit(event);
  note_saved(saved.step);
}

/// Waits for the save that is under way.
std::optional<checkpoint::Saved> Checkpointing::wait_for_save() {
  if (saver_->busy()) events_.emit(Activity{.name = "saving"});
  return saver_->finish();
}

void Checkpointing::report(const checkpoint::Saved& saved, bool last) {
  if (saved.error.empty()) {
    misses_ = 0;
    saved_step_ = saved.step;
    saved_seconds_ = saved.seconds;
    emit_saved(saved, last && leaving_);
    if (export_) export_saved(saved, last);
    return;
  }
  ++misses_;
  if (last || misses_ >= most_misses)
    fail(ExitCode::io, "checkpoint", "step {} could not be saved: {}; {}; earlier checkpoints are as they were",
         saved.step, saved.error, last ? "it was the last one" : fmt::format("{} saves in a row have failed", misses_));
  events_.warn(
      fmt::format("could not save step {}: {}; training goes on with earlier checkpoints ({} of {} failures in a row "
                  "that end it)",
                  saved.step, saved.error, misses_, most_misses));
}

/// The weights are those that were saved, because each save is awaited.
void Checkpointing::export_saved(const checkpoint::Saved& saved, bool last) {
  events_.emit(Activity{.name = "exporting"});
  try {
    events_.say(export_(saved.path));
  } catch (const Error& error) {  // on all ranks
    if (error.code() != ExitCode::io) throw;
    if (last)
      fail(ExitCode::io, "export", "step {}, the last, could not be exported: {}; the checkpoint itself is saved",
           saved.step, error.reason());
    events_.warn(
        fmt::format("could not export step {}: {}; the checkpoint itself is saved", saved.step, error.reason()));
  }
}

bool Checkpointing::after_step(const Progress& progress) {
  if (saver_) {
    if (const auto saved = saver_->poll()) report(*saved, false);
  }
  const Due due = agree(progress.steps);
  leaving_ = due.leave;
  if (leaving_ || !due.save) return !leaving_;
  if (!saver_) {
    if (due.asked) events_.warn("a signal asks for a save, but --out is none: nothing was saved; continuing");
    return true;
  }
  // The save took longer than the interval: training waits.
  if (const auto saved = wait_for_save()) report(*saved, false);
  begin(progress, due.only_best);
  if (export_)  // later, the weights are those of another step
    if (const auto saved = wait_for_save()) report(*saved, false);
  return true;
}

Progress Checkpointing::roll_back() {
  if (const auto saved = saver_->finish()) report(*saved, false);
  const std::optional<Resumed> found = load_newest_run(options_.run.out, trainer_.model(), trainer_.optimizer(), run_,
                                                       [&](const std::string& skipped) { events_.warn(skipped); });
  if (!found)
    fail(ExitCode::data, "checkpoint",
         "{} has no checkpoint to go back to; expected one that is whole; look at why "
         "saves have failed",
         options_.run.out);
  if (found->progress.loss_scale) trainer_.scaler().set_state(*found->progress.loss_scale);
  trainer_.weights_changed();
  saved_step_ = found->progress.steps;
  validated_ = {-1, 0};
  change_best([&] { checkpoint::Best::go_back(checkpoints_, saved_step_); });
  return found->progress;
}

void Checkpointing::complete() noexcept {
  try {
    if (!saver_ || !saver_->busy()) return;
    const auto saved = saver_->finish_within(std::chrono::duration<double>(options_.run.timeout));
    if (!saved) return;
    if (saved->error.empty()) return emit_saved(*saved, false);
    events_.warn(fmt::format("could not save step {}: {}", saved->step, saved->error));
  } catch (const std::exception&) {  // this failed too: the folder keeps its temporary name
  }
}

Checkpointing::~Checkpointing() {
  if (trainer_.model().mesh().world().size() == 1) complete();
  if (unfinished_save_text_ != nullptr && saver_ && saver_->busy()) *unfinished_save_text_ = unfinished_save();
}

// A save is committed only if all ranks agree that their files are written. If a rank fails before that, the save is
// lost. Once rank 0 is committing, it needs no other rank, only time.
std::string Checkpointing::unfinished_save() const {
  if (saver_->committing())
    return fmt::format("the save of step {} was being committed: it is whole if {} is there", saver_->step(),
                       saver_->path().string());
  return fmt::format("the save of step {} was under way and is lost; {}", saver_->step(),
                     saved_step_ < 0 ? "this run has saved nothing before"
                                     : fmt::format("the newest checkpoint is that of step {}", saved_step_));
}

void Checkpointing::finish(const Progress& progress) {
  if (saver_) {
    if (const auto saved = wait_for_save()) report(*saved, saved->step == progress.steps);
    if (saved_step_ != progress.steps) {
      begin(progress, false);
      report(wait_for_save().value(), true);
    }
  }
  if (!leaving_) return;
  if (supervisor_gone()) events_.warn("the supervisor that started this job is gone: nothing will start it again");
  const char* why = signals_noted().interrupted ? "interrupted" : "preempted";
  events_.say(saver_ ? fmt::format("{}; saved step {} in {:.2f} s", why, saved_step_, saved_seconds_)
                     : fmt::format("{} after step {}; --out is none: nothing was saved", why, progress.steps));
}

}  // namespace trireme
