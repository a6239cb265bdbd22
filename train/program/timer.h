// Measures a rank's time by phase. Scopes nest, and an inner phase's time is not counted in the outer one. So the
// phases add up; the rest of the wall clock is time outside all phases.
//
//   const auto timed = times.time(Phase::forward);   // until `timed` goes out of scope
//
// A pipeline executor or a hook with its own measurement calls add(). Phase::communication is time spent waiting for
// communication (exposed). Communication that overlaps with computation is not included.
// Read next: train/events/metrics.h (a lap as metrics), train/report/report.h (the table at the end).
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string_view>

#include "core/profile.h"
#include "parallel/comm/watch/beacon.h"

namespace trireme {

/// How the time of a step divides into phases.
class PhaseTimes {
 public:
  using Clock = std::chrono::steady_clock;  ///< what times are measured with

  /// While it lives, time counts for a phase.
  class Scope {
   public:
    Scope(PhaseTimes& times, Phase phase);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    PhaseTimes& times_;
    Phase phase_;
    Scope* outer_;
    ProfileScope event_;
    Clock::time_point start_;
    watch::PhaseScope shown_;  // publishes the phase to the other ranks
    double inner_ = 0;         // seconds spent in scopes and add() inside this one
    friend class PhaseTimes;
  };

  /// Starts a phase.
  [[nodiscard]] Scope time(Phase phase) { return Scope(*this, phase); }
  /// Adds `seconds` that were measured elsewhere, and subtracts them from the enclosing scope.
  void add(Phase phase, double seconds);

  /// Averages over the steps since the last lap() (or the start).
  struct Lap {
    double step_ms = 0;  ///< wall clock per step, without phases between steps
    std::array<double, phases> ms{};
    double ms_of(Phase phase) const { return ms[static_cast<std::size_t>(phase)]; }  ///< of a phase
  };
  /// The times since the last lap, for each of `steps` steps.
  Lap lap(std::int64_t steps);

  const PhaseSeconds& totals() const { return totals_; }
  double seconds() const;           ///< wall clock since construction
  double seconds_in_steps() const;  ///< of these, without phases between steps: evaluation, sampling, saving

 private:
  PhaseSeconds totals_{}, at_lap_{};
  Clock::time_point start_ = Clock::now(), lap_start_ = start_;
  Scope* innermost_ = nullptr;
};

}  // namespace trireme
