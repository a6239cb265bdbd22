// The barrier of a thread group. It remembers which ranks came, tells the watchdog which are missing, and also works
// well with fewer cores than ranks. A waiter spins briefly, then yields, then sleeps. It spins less if spinning did not
// help the last times: the peer may be waiting for this core.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "parallel/comm/watch/beacon.h"

namespace trireme::comm {

using watch::Clock;

/// How a wait ended: as it should; a rank it needs has left and will never come; `failed` was set.
enum class WaitResult : std::uint8_t { done, peer_left, failed };

class Barrier {
 public:
  /// `failed`: set (before wake()) when a rank has failed and nobody should wait any longer.
  Barrier(int ranks, const std::atomic<bool>& failed);

  /// Returns when every rank has come as often as this one. What a rank wrote before it is visible to all after it.
  /// Calls wait.lasts() once the wait is long.
  WaitResult wait(int rank, watch::Wait& wait);
  /// Ranks that have come less often than `rank`.
  std::vector<int> missing(int rank) const;
  void leave(int rank);  ///< that rank will not come again
  void wake();

 private:
  struct alignas(64) Count {
    std::atomic<std::uint64_t> value{0};
  };
  struct alignas(64) Visitor {
    std::atomic<std::uint64_t> visits{0};
    std::atomic<bool> left{false};
    int spins = 0;  // how long to spin, as learned from the last waits
  };

  // True if a rank left before its visit number `visit`, so that this barrier can never be complete.
  bool will_never_complete(std::uint64_t visit) const;

  const std::atomic<bool>& failed_;
  std::vector<Visitor> visitors_;  // by rank
  Count arrivals_, completed_;     // all ranks' visits; barriers that are over
  std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable over_;
};

}  // namespace trireme::comm
