#include "parallel/comm/common/barrier.h"

#include <sched.h>

#include <algorithm>

namespace trireme::comm {
namespace {

constexpr int most_spins = 1024;  // some tens of microseconds: ranks in step arrive within that time
constexpr int fewest_spins = 16;
constexpr int yields_while_waiting = 4;  // on a busy machine each may cost another process's time slice

void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Barrier::Barrier(int ranks, const std::atomic<bool>& failed)
    : failed_(failed), visitors_(static_cast<std::size_t>(ranks)) {}

WaitResult Barrier::wait(int rank, watch::Wait& wait) {
  if (failed_) return WaitResult::failed;
  Visitor& visitor = visitors_[static_cast<std::size_t>(rank)];
  const std::uint64_t mine = visitor.visits.load(std::memory_order_relaxed) + 1;
  visitor.visits.store(mine, std::memory_order_relaxed);
  // Nobody can start the next barrier before this one is over, so the count of arrivals identifies the last rank.
  if (arrivals_.value.fetch_add(1, std::memory_order_acq_rel) + 1 == mine * visitors_.size()) {
    completed_.value = mine;
    if (sleepers_ > 0) wake();
    return WaitResult::done;
  }
  const auto over = [&] { return completed_.value >= mine; };
  for (int i = 0; i < visitor.spins; ++i) {
    if (over()) {
      visitor.spins = std::min(2 * visitor.spins, most_spins);
      return WaitResult::done;
    }
    pause_core();
  }
  visitor.spins = std::max(visitor.spins / 2, fewest_spins);
  for (int i = 0; i < yields_while_waiting; ++i) {
    if (over()) return WaitResult::done;
    sched_yield();
  }
  wait.lasts();
  std::unique_lock lock(mutex_);
  ++sleepers_;  // before reading `over` again: either the last rank sees the sleeper, or the sleeper sees that it came
  over_.wait(lock, [&] { return over() || failed_ || will_never_complete(mine); });
  --sleepers_;
  if (over()) return WaitResult::done;
  return failed_ ? WaitResult::failed : WaitResult::peer_left;
}

bool Barrier::will_never_complete(std::uint64_t visit) const {
  return std::any_of(visitors_.begin(), visitors_.end(), [&](const Visitor& v) { return v.left && v.visits < visit; });
}

void Barrier::leave(int rank) {
  visitors_[static_cast<std::size_t>(rank)].left = true;
  wake();
}

std::vector<int> Barrier::missing(int rank) const {
  std::vector<int> ranks;
  const std::uint64_t mine = visitors_[static_cast<std::size_t>(rank)].visits;
  for (std::size_t r = 0; r < visitors_.size(); ++r) {
    if (visitors_[r].visits < mine) ranks.push_back(static_cast<int>(r));
  }
  return ranks;
}

void Barrier::wake() {
  { const std::scoped_lock lock(mutex_); }  // a waiter that has checked but does not sleep yet holds the lock
  over_.notify_all();
}

}  // namespace trireme::comm
