// A rank's sign of life: a counter that grows whenever the rank gets on with its work: with every kernel it starts,
// every operation it begins or ends, every part of the model it enters. Whoever waits for the rank can tell by it
// "slow" from "stopped" (parallel/comm/watch/watchdog.h). A rank that waits itself does not beat.
//
// Each thread has the counter of its rank, or none: then a beat does nothing. It costs about a nanosecond.
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
  /// A helper thread that works for a rank beats for it; the counter must outlive that.
  static Counter* current() { return counter_; }
  static void set_current(Counter* counter) { counter_ = counter; }

 private:
  static inline thread_local Counter* counter_ = nullptr;
};

}  // namespace trireme
