// Eta: how many seconds of a run are left. One slow step barely changes it, and evaluations, samples and saves that are
// still due count, also those after the last step.
// Read next: ops/terminal/terminal_sink.h, which shows it.
#pragma once

#include <cstdint>
#include <deque>

namespace trireme {

class Eta {
 public:
  /// Steps between events; 0: never, or only after the last step.
  struct Schedule {
    std::int64_t steps = 0;  ///< of the run
    std::int64_t eval_every = 0, sample_every = 0, save_every = 0;
  };
  explicit Eta(Schedule schedule) : schedule_(schedule) {}

  void stepped(double seconds);
  /// After `step`, in this many seconds.
  void evaluated(std::int64_t step, double seconds) { evaluation_.add(step, seconds); }
  void sampled(std::int64_t step, double seconds) { sample_.add(step, seconds); }
  /// `stall_seconds`: how long training stood still for it. The run waits for the whole of its last save.
  void saved(std::int64_t step, double stall_seconds, double seconds) {
    stall_.add(step, stall_seconds);
    save_.add(step, seconds);
  }

  /// A typical step: the mean of the last hundred without the fastest and the slowest tenth. 0 before the first.
  double step_seconds() const;
  /// When `step` has just been made: what is due after it counts until it has been done. 0 before the first step is
  /// made.
  double seconds_left(std::int64_t step) const;

 private:
  /// The mean, in which later values weigh more.
  struct Mean {
    double value = 0;
    int count = 0;
    std::int64_t step = 0;  ///< of the newest value
    void add(std::int64_t at, double x);
  };
  double due(std::int64_t step, std::int64_t every, const Mean& mean) const;

  Schedule schedule_;
  std::deque<double> steps_;  // the newest last
  Mean evaluation_, sample_, stall_, save_;
};

}  // namespace trireme
