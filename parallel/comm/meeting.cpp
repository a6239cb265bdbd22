#include "parallel/comm/meeting.h"

#include <sched.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace trireme::comm {
namespace {

constexpr int spins =
    1000;  // some tens of microseconds: longer than peers in step are apart, shorter than a time slice
constexpr int yields = 20;

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

Meeting::Meeting(int ranks, bool spin, const std::atomic<bool>& failed)
    : spin_(spin), failed_(failed), visits_(static_cast<std::size_t>(ranks)) {}

Met Meeting::meet(int rank, std::chrono::duration<double> patience) {
  if (failed_) return Met::failed;
  auto& visits = visits_[static_cast<std::size_t>(rank)].value;
  const std::uint64_t mine = visits.load(std::memory_order_relaxed) + 1;
  visits.store(mine, std::memory_order_relaxed);
  // Nobody can start the next meeting before this one is over, so the count of arrivals tells who is last.
  if (arrivals_.value.fetch_add(1, std::memory_order_acq_rel) + 1 == mine * visits_.size()) {
    completed_.value = mine;
    if (sleepers_ > 0) wake();
    return Met::all;
  }
  const auto over = [&] { return completed_.value >= mine; };
  for (int i = 0; spin_ && i < spins; ++i) {
    if (over()) return Met::all;
    pause();
  }
  for (int i = 0; i < yields; ++i) {
    if (over()) return Met::all;
    sched_yield();
  }
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(patience);
  std::unique_lock lock(mutex_);
  ++sleepers_;  // before `over` is read again: either the last rank sees the sleeper or the sleeper sees it came
  const bool in_time = over_.wait_until(lock, deadline, [&] { return over() || failed_; });
  --sleepers_;
  return over() ? Met::all : in_time ? Met::failed : Met::late;
}

std::vector<int> Meeting::missing(int rank) const {
  std::vector<int> ranks;
  const auto visits = [&](std::size_t r) { return visits_[r].value.load(); };
  for (std::size_t r = 0; r < visits_.size(); ++r) {
    if (visits(r) < visits(static_cast<std::size_t>(rank))) ranks.push_back(static_cast<int>(r));
  }
  return ranks;
}

void Meeting::wake() {
  { const std::scoped_lock lock(mutex_); }  // a sleeper between its last look and its sleep holds the lock
  over_.notify_all();
}

}  // namespace trireme::comm
