#include "parallel/comm/watch/watchdog.h"

#include <algorithm>

#include "core/cores.h"
#include "parallel/comm/watch/report.h"

namespace trireme::watch {

Watchdog::Watchdog(std::shared_ptr<const RankPages> pages, ProcessGroup::Deadline timeout,
                   std::function<void(const std::exception_ptr&)> on_lost, std::function<void()> on_end,
                   std::function<Clock::time_point()> now)
    : pages_(std::move(pages)),
      timeout_(timeout.count()),
      on_lost_(std::move(on_lost)),
      on_end_(std::move(on_end)),
      now_(std::move(now)),
      observer_(pages_),
      thread_([this] { run(); }) {}

Watchdog::~Watchdog() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  thread_.join();
}

void Watchdog::add(std::shared_ptr<Beacon> local) {
  const std::scoped_lock lock(mutex_);
  local_.push_back(std::move(local));
}

void Watchdog::remove(const Beacon& local) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(local_, [&](const auto& beacon) { return beacon.get() == &local; });
}

void Watchdog::run() {
  use_all_cores();
  const auto interval = std::chrono::duration<double>(std::clamp(timeout_ / 20, 0.005, 0.05));
  auto last = now_();
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, interval, [this] { return stop_; })) {
    const auto now = now_();
    const double seconds = std::chrono::duration<double>(now - std::exchange(last, now)).count();
    if (look(seconds, lock)) return;
  }
}

bool Watchdog::another_ends_job() const {
  const std::vector<RankSigns>& ranks = observer_.signs();
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const bool here = std::any_of(local_.begin(), local_.end(),
                                  [&](const auto& beacon) { return beacon->rank() == static_cast<int>(rank); });
    if (ranks[rank].visible && ranks[rank].failed && !here) return true;
  }
  return false;
}

bool Watchdog::look(double seconds, std::unique_lock<std::mutex>& lock) {
  for (const auto& beacon : local_) beacon->show_waits();
  observer_.look(seconds);
  ending_ = another_ends_job() ? ending_ + seconds : 0;
  if (on_end_ && ending_ >= 0.25) on_end_();
  const auto report = [&](const FaultyRanks& faulty, int waiter) {
    const Finding finding{faulty, waiter, timeout_};
    const std::exception_ptr error = std::make_exception_ptr(lost_rank(finding, *pages_, observer_));
    lock.unlock();  // on_lost_ may end ranks, which take the lock
    on_lost_(error);
    lock.lock();
    return true;
  };
  if (const std::vector<int> ranks = died(observer_.signs()); !ranks.empty())
    return report({WaitFault::died, ranks}, -1);
  for (const auto& beacon : local_) {
    const FaultyRanks faulty = find_faulty_ranks(beacon->rank(), observer_.signs(), timeout_);
    if (faulty.fault == WaitFault::unseen &&
        observer_.signs()[static_cast<std::size_t>(beacon->rank())].since_sign_of_life <
            patience_with_unseen * timeout_ + unseen_delay_)
      continue;
    if (faulty.fault != WaitFault::none) return report(faulty, beacon->rank());
  }
  return false;
}

}  // namespace trireme::watch
