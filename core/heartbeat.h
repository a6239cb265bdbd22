// A rank's heartbeat: a counter that grows while the rank makes progress. The rank counts every kernel that it starts,
// every operation that it begins or ends, and every part of the model that it enters. The watchdog uses the counter to
// tell a slow rank from a stopped one (parallel/comm/watch/watchdog.h). A rank that waits does not count.
//
// Each thread uses its rank's counter; without one, a beat does nothing. A beat costs about a nanosecond.
// Read next: parallel/comm/watch/watchdog.h.
#pragma once

#include <atomic>
#include <cstdint>

namespace trireme {

class Heartbeat {
 public:
  using Counter = std::atomic<std::uint64_t>;

  static void beat() {
    if (counter_ != nullptr) counter_->fetch_add(1, std::memory_order_relaxed);
  }
  /// Sets the counter of this thread's rank, or null for none. It must outlive the thread.
  static void set_current(Counter* counter) { counter_ = counter; }

 private:
  static inline thread_local Counter* counter_ = nullptr;
};

}  // namespace trireme
