// Where a rank's time goes, by phase. Scopes nest, and an inner phase's time is not counted in the outer one, so phases
// add up: what is left of the wall clock is time nobody claimed.
//
//   const auto timed = times.time(Phase::forward);   // until `timed` goes out of scope
//
// A pipeline executor or a hook that measures by itself calls add(). Phase::communication is time spent waiting for
// communication (exposed); what overlaps with computing is not in it.
// Read next: train/program/metrics.h (a lap as metrics), train/program/console.h (the table at the end).
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string_view>

#include "core/profile.h"
#include "parallel/comm/watch/beacon.h"

namespace trireme {

class PhaseTimes {
 public:
  using Clock = std::chrono::steady_clock;

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
    watch::PhaseScope shown_;  // to the other ranks
    double inner_ = 0;         // seconds that scopes and add() inside this one have claimed
    friend class PhaseTimes;
  };

  [[nodiscard]] Scope time(Phase phase) { return Scope(*this, phase); }
  /// Counts `seconds` that were measured elsewhere, and takes them from the scope around this call.
  void add(Phase phase, double seconds);

  /// Averages over the steps since the last lap() (or the start).
  struct Lap {
    double step_ms = 0;  ///< wall clock per step, without what comes between steps
    std::array<double, phases> ms{};
    double ms_of(Phase phase) const { return ms[static_cast<std::size_t>(phase)]; }
  };
  Lap lap(std::int64_t steps);

  const PhaseSeconds& totals() const { return totals_; }
  double seconds() const;  ///< wall clock since this object was made

 private:
  PhaseSeconds totals_{}, at_lap_{};
  Clock::time_point start_ = Clock::now(), lap_start_ = start_;
  Scope* innermost_ = nullptr;
};

}  // namespace trireme
