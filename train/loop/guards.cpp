#include "train/loop/guards.h"

#include <cmath>
#include <utility>

#include "train/report/report.h"
#include "train/step/non_finite.h"

namespace trireme {

Guards::Guards(const TrainOptions& options, Trainer& trainer, Checkpointing* checkpoints, Progress& progress,
               EventStream& events)
    : options_(options),
      trainer_(trainer),
      checkpoints_(checkpoints),
      progress_(progress),
      events_(events),
      detector_(options.guards.spike_window, options.guards.spike_threshold) {
  detector_.set_losses(progress.guards.losses);
}

// Every rank sees the same loss and norm, and so throws the same error: all can still complete a pending save together.
bool Guards::checked_update(const Trainer::GradientReport& report, double lr) {
  try {
    return update_or_skip(report, lr);
  } catch (const Error& error) {
    if (error.code() == ExitCode::numerical && checkpoints_ != nullptr) checkpoints_->complete();
    throw;
  }
}

bool Guards::update_or_skip(const Trainer::GradientReport& report, double lr) {
  StepNumbers numbers = trainer_.numbers(report);
  // A loss that is judged must be known first. Otherwise a GPU begins the update while the host still waits.
  const bool checks_spikes =
      options_.guards.spike_threshold > 0 && checkpoints_ != nullptr && checkpoints_->can_roll_back();
  if (!checks_spikes) trainer_.queue_update(lr, numbers);
  norm_ = numbers.norm();
  loss_ = numbers.loss();
  progress_.samples += options_.batch_sizes().global_batch;
  const bool overflow = trainer_.scaler().active() && !std::isfinite(norm_);  // f16 overflow: update() handles it
  const bool finite = std::isfinite(loss_) && std::isfinite(norm_);
  // If copies differ, the machine is the cause. Report that first, before the samples or the learning rate are blamed.
  if (!finite) trainer_.check_replicas();
  if (!overflow && !finite) {
    skip();
    return false;
  }
  if (!overflow && checks_spikes && detector_.is_spike(loss_)) {
    roll_back();
    return false;
  }
  if (!trainer_.update(lr, norm_)) {
    events_.warn(skipped_line(progress_.steps + 1, trainer_.scaler()));
    return false;
  }
  ++progress_.steps;
  progress_.loss = loss_;
  skipped_in_a_row_ = 0;
  if (options_.guards.spike_threshold > 0) {
    detector_.add(loss_);
    progress_.guards.losses = detector_.losses();
  }
  const std::int64_t every = options_.guards.check_replicas;
  if (every > 0 && progress_.steps % every == 0) trainer_.check_replicas(progress_.steps / every);
  return true;
}

void Guards::skip() {
  const std::int64_t step = progress_.steps + 1, most = options_.guards.max_skipped;
  const std::int64_t batch = options_.batch_sizes().global_batch;
  const double number = std::isfinite(norm_) ? loss_ : norm_;
  const std::string what = fmt::format("the {} is {}", std::isfinite(norm_) ? "loss" : "gradient norm",
                                       std::isnan(number) ? "nan" : "infinite");
  const Trainer::Origin origin = trainer_.find_non_finite();
  trainer_.skip();
  progress_.guards.skip({.first = progress_.samples - batch, .last = progress_.samples - 1, .step = step});
  if (++skipped_in_a_row_ >= most)
    fail(ExitCode::numerical, "train", "{}{}; expected a finite number; {}; earlier checkpoints are as they were; {}",
         what, most == 1 ? "" : fmt::format(", {} steps in a row that are not finite", skipped_in_a_row_), origin.what,
         origin.remedy);
  const std::string skipped =
      skipped_in_a_row_ == 1 ? "1 step was" : fmt::format("{} steps in a row were", skipped_in_a_row_);
  events_.warn(
      fmt::format("step {} skipped: {}: {}; only the position in the data has changed; {} skipped, and {} in a row end "
                  "the run",
                  step, what, origin.what, skipped, most));
}

void Guards::roll_back() {
  const std::int64_t step = progress_.steps + 1, most = options_.guards.spike_rollbacks;
  const std::string what = fmt::format(
      "a loss of {:.4f} where the median of {} is {:.4f}: z = {:.1f}, above --spike-threshold {:g}", loss_,
      options_.guards.spike_window, detector_.median(), detector_.score(loss_), options_.guards.spike_threshold);
  const std::int64_t rollbacks = progress_.guards.rollbacks, samples = progress_.samples;
  if (rollbacks >= most)
    fail(ExitCode::numerical, "train",
         "{}; expected none after {} rollback{}, as many as --spike-rollbacks allows; {} {} to {};"
         " earlier checkpoints are as they were",
         what, rollbacks, rollbacks == 1 ? "" : "s", steadier(options_), samples - options_.batch_sizes().global_batch,
         samples - 1);
  trainer_.skip();
  Progress there = checkpoints_->roll_back();
  there.guards.rollbacks = rollbacks + 1;
  there.guards.skip({.first = there.samples, .last = samples - 1, .step = there.steps + 1});
  events_.warn(fmt::format("step {}: {}; back to step {}, on with the samples after {} to {} ({} of {} rollbacks)",
                           step, what, there.steps, there.samples, samples - 1, there.guards.rollbacks, most));
  there.samples = samples;
  progress_ = std::move(there);
  detector_.set_losses(progress_.guards.losses);
  events_.emit(RolledBack{.step = progress_.steps});
}

}  // namespace trireme
