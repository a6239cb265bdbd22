// Eta: how many seconds of a run are left. One slow step barely changes it, and evaluations, samples and saves that are
// still due count.
// Read next: train/terminal/terminal_sink.h, which shows it.
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
  void evaluated(double seconds) { evaluation_.add(seconds); }
  void sampled(double seconds) { sample_.add(seconds); }
  /// `seconds`: how long training stood still for a save.
  void saved(double seconds) { save_.add(seconds); }

  /// A typical step: the mean of the last hundred without the fastest and the slowest tenth. 0 before the first.
  double step_seconds() const;
  /// After `step`. 0 before the first step is made.
  double seconds_left(std::int64_t step) const;

 private:
  /// The mean, in which later values weigh more.
  struct Mean {
    double value = 0;
    int count = 0;
    void add(double x);
  };

  Schedule schedule_;
  std::deque<double> steps_;  // the newest last
  Mean evaluation_, sample_, save_;
};

}  // namespace trireme
