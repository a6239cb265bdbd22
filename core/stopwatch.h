// Seconds since a moment. Read next: train/program/timer.h, which divides a run's time into phases.
#pragma once

#include <chrono>

namespace trireme {

/// Measures the seconds since it was made.
class Stopwatch {
 public:
  /// Since this was made, or since the last restart().
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  /// Begins again, and returns the seconds until now.
  double restart() {
    const double passed = seconds();
    start_ = Clock::now();
    return passed;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

}  // namespace trireme
