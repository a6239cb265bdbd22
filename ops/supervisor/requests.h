// The requests of a user (save; save and leave) that have not been sent to the job yet, and when to send them. A signal
// can be lost: mpirun forwards signals to its ranks, but drops them before the ranks exist. A signal can also kill a
// process that has not installed its handlers yet.
//
//   to leave   sent at once, then every second until the job has its handlers. Repeating it does no harm: a job with
//              handlers ignores the repetition, and one without them is killed, but has nothing to save yet
//   to save    sent once, when the job has its handlers, because it might be killed before. If the job ends before it
//              has saved, the request is sent to the next job
//
// Uses no process, clock or file. Read next: ops/supervisor/supervisor.h, which sends.
#pragma once

#include <chrono>
#include <optional>

namespace trireme::supervisor {

class Requests {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds resend_interval{1};

  void save() { save_ = true; }
  void leave() { leave_ = true; }
  bool leaving() const { return leave_; }

  /// The signal to send to the job now; nothing if there is none. `listens`: every process of the job has installed its
  /// signal handlers.
  std::optional<int> due(Clock::time_point now, bool listens);
  /// Call when the job has ended. `saved`: it has saved since the request. Returns true if a request to save was sent
  /// but not fulfilled; the request is then repeated to the next job.
  bool ended(bool saved);

 private:
  bool save_ = false, save_sent_ = false, leave_ = false, leave_delivered_ = false;
  std::optional<Clock::time_point> leave_sent_;
};

}  // namespace trireme::supervisor
