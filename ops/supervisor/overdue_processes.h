// OverdueProcesses: kills what does not end by itself after a job has ended or failed: the launcher of a job that has
// failed, and processes that outlive the job's command. Before it ends, a launcher waits for its helper on every host,
// also on one that is gone.
// Read next: ops/supervisor/job.h, ops/supervisor/supervisor.cpp.
#pragma once

#include <chrono>
#include <optional>
#include <utility>

#include "ops/supervisor/job.h"
#include "ops/supervisor/say.h"

namespace trireme::supervisor {

class OverdueProcesses {
 public:
  /// `launcher`: the job's command is a launcher. `grace`: seconds.
  OverdueProcesses(bool launcher, double grace) : launcher_(launcher), grace_(grace) {}

  /// To be called often. `failure`: the exit code of the job's error message, if there is one.
  void kill(const Job& job, std::optional<int> failure) {
    if (job.ending())
      kill_survivors(job);
    else if (launcher_ && failure && !launcher_killed_)
      kill_launcher(job, *failure);
  }
  /// How a job that is over has ended. If its launcher was killed, the job's own failure counts.
  Ending ending_of(const Job& job) const { return launcher_killed_ ? failure_ : job.ending().value(); }

 private:
  using Clock = std::chrono::steady_clock;

  /// Seconds since the first call with this `begin`, which must be Clock::time_point() before it.
  static double since(Clock::time_point& begin) {
    if (begin == Clock::time_point()) begin = Clock::now();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }
  void kill_launcher(const Job& job, int failure) {
    constexpr double patience = 5;  // seconds; it needs two
    if (since(failed_) < patience) return;
    say("the launcher has not ended {:g} s after the job failed: it is killed", patience);
    launcher_killed_ = true;
    failure_ = Ending::of_exit_code(failure);
    job.kill_all();
  }
  void kill_survivors(const Job& job) {
    const double seconds = since(ended_);
    if (seconds < grace_) return;
    if (!std::exchange(told_, true))
      say("{} processes of the job have outlived it by {:.1f} s and are killed", job.processes(), seconds);
    job.kill_all();
  }

  const bool launcher_;
  const double grace_;
  Clock::time_point failed_, ended_;
  bool launcher_killed_ = false;
  Ending failure_;  // of the job whose launcher was killed
  bool told_ = false;
};

}  // namespace trireme::supervisor
