#include "train/program/timer.h"

#include <algorithm>

namespace trireme {
namespace {

double seconds_since(PhaseTimes::Clock::time_point start) {
  return std::chrono::duration<double>(PhaseTimes::Clock::now() - start).count();
}

}  // namespace

PhaseTimes::Scope::Scope(PhaseTimes& times, Phase phase)
    : times_(times),
      phase_(phase),
      outer_(times.innermost_),
      event_("phase", name(phase)),
      start_(Clock::now()),
      shown_(phase) {
  times_.innermost_ = this;
}

PhaseTimes::Scope::~Scope() {
  const double elapsed = seconds_since(start_);
  times_.innermost_ = outer_;
  times_.totals_[static_cast<std::size_t>(phase_)] += elapsed - inner_;
  if (outer_ != nullptr) outer_->inner_ += elapsed;
}

void PhaseTimes::add(Phase phase, double seconds) {
  totals_[static_cast<std::size_t>(phase)] += seconds;
  if (innermost_ != nullptr) innermost_->inner_ += seconds;
}

PhaseTimes::Lap PhaseTimes::lap(std::int64_t steps) {
  Lap result;
  const double per_step = 1e3 / static_cast<double>(std::max<std::int64_t>(steps, 1));
  double between = 0;
  for (std::size_t i = 0; i < totals_.size(); ++i) {
    const double spent = totals_[i] - at_lap_[i];
    result.ms[i] = spent * per_step;
    if (!in_step(static_cast<Phase>(i))) between += spent;
  }
  result.step_ms = std::max(0.0, seconds_since(lap_start_) - between) * per_step;
  at_lap_ = totals_;
  lap_start_ = Clock::now();
  return result;
}

double PhaseTimes::seconds() const { return seconds_since(start_); }

double PhaseTimes::seconds_in_steps() const {
  double seconds = seconds_since(start_);
  for (std::size_t i = 0; i < totals_.size(); ++i)
    if (!in_step(static_cast<Phase>(i))) seconds -= totals_[i];
  return seconds;
}

}  // namespace trireme
