// Where the ranks of a thread group meet: a barrier that remembers who came, gives up at a deadline, and is kind to
// machines with fewer cores than ranks. A waiter spins for a moment (only when every rank can have a core), then lets
// others run, then sleeps.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

namespace trireme::comm {

using Clock = std::chrono::steady_clock;

enum class Met : std::uint8_t { all, late, failed };  ///< all came; the deadline passed first; `failed` was set first

class Meeting {
 public:
  /// `failed`: set (before wake()) when the ranks' world is lost and nobody should wait any longer.
  Meeting(int ranks, bool spin, const std::atomic<bool>& failed);

  /// Returns when every rank has come as often as this one. What a rank wrote before is visible to all after.
  Met meet(int rank, std::chrono::duration<double> patience);
  /// Ranks that have come less often than `rank`.
  std::vector<int> missing(int rank) const;
  void wake();

 private:
  struct alignas(64) Count {
    std::atomic<std::uint64_t> value{0};
  };

  const bool spin_;
  const std::atomic<bool>& failed_;
  std::vector<Count> visits_;   // by rank: how often it has come
  Count arrivals_, completed_;  // all ranks' visits; meetings that are over
  std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable over_;
};

}  // namespace trireme::comm
