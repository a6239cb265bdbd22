// What a user has asked of a job, and when the job is told. A signal can come to nothing: mpirun passes on what it gets
// to ranks, and drops it while it has none yet; a process that has not yet said what its signals mean is killed by
// them.
//
//   to leave   the job is told at once and then every second, until it is known to listen: told twice it leaves as told
//              once, and if it is killed instead there was nothing to save
//   to save    the job is told when it is known to listen, and once: told before, it might be killed. When it dies before
//              it has saved, the next one is told
//
// No process, clock or file is touched here. Read next: train/supervisor/supervisor.h, which sends.
#pragma once

#include <chrono>
#include <optional>

namespace trireme::supervisor {

class Orders {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds again{1};

  void save() { save_ = true; }
  void leave() { leave_ = true; }
  bool leaving() const { return leave_; }

  /// The signal that the job is to be sent now; nothing when it has been told all. `listens`: each of its processes
  /// has said what its signals mean.
  std::optional<int> due(Clock::time_point now, bool listens);
  /// The job has ended; `saved`: since it was told to save. True when it was and has not: then the next one is told.
  bool ended(bool saved);

 private:
  bool save_ = false, told_save_ = false, leave_ = false, heard_leave_ = false;
  std::optional<Clock::time_point> told_leave_;
};

}  // namespace trireme::supervisor
