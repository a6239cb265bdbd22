// Where the ranks of a thread group meet: a barrier that remembers who came, tells the watchdog who is missing, and
// also works well with fewer cores than ranks. A waiter spins briefly, then yields, then sleeps. It spins less if
// spinning did not help the last times: the peer may be waiting for this core.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "parallel/comm/watch/beacon.h"

namespace trireme::comm {

using watch::Clock;

/// How a wait ended: all came; a missing rank will never come; `failed` was set.
enum class Met : std::uint8_t { all, left, failed };

class Meeting {
 public:
  /// `failed`: set (before wake()) when a rank has failed and nobody should wait any longer.
  Meeting(int ranks, const std::atomic<bool>& failed);

  /// Returns when every rank has come as often as this one. What a rank wrote before it is visible to all after it.
  /// Calls wait.lasts() once the wait is long.
  Met meet(int rank, watch::Wait& wait);
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

  // True if a rank left before its visit number `visit`, so that this meeting can never be complete.
  bool will_never_complete(std::uint64_t visit) const;

  const std::atomic<bool>& failed_;
  std::vector<Visitor> visitors_;  // by rank
  Count arrivals_, completed_;     // all ranks' visits; meetings that are over
  std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable over_;
};

}  // namespace trireme::comm
