// A rank's heartbeat: a counter that grows while the rank makes progress: with every kernel it starts, every operation
// it begins or ends, every part of the model it enters. The watchdog uses it to tell a slow rank from a stopped one
// (parallel/comm/watch/watchdog.h). A rank that is waiting does not beat.
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
  /// The counter of this thread's rank; null: none. It must outlive the thread.
  static void set_current(Counter* counter) { counter_ = counter; }

 private:
  static inline thread_local Counter* counter_ = nullptr;
};

}  // namespace trireme
