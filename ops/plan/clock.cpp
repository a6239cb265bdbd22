#include "ops/plan/clock.h"

#include <algorithm>
#include <limits>

namespace trireme::plan {

Clock::~Clock() {
  while (!alive_.empty()) std::coroutine_handle<>::from_address(*alive_.begin()).destroy();
}

double Clock::speed(int node) const {
  const int room = node < 0 ? 1 : cores_;
  return room == 0 ? 1 : std::min(1.0, static_cast<double>(room) / static_cast<double>(wanted_.at(node)));
}

void Clock::run() {
  do {
    while (!ready_.empty()) {
      const std::coroutine_handle<> who = ready_.front();
      ready_.pop_front();
      who.resume();
    }
    if (error_) std::rethrow_exception(error_);
  } while (go_on());
}

/// To the next moment at which something ends; false if nothing will.
bool Clock::go_on() {
  constexpr double never = std::numeric_limits<double>::infinity(), same = 1e-12;  // seconds
  wanted_.clear();
  for (const Work& work : works_) wanted_[work.node] += work.threads;
  double next = sleeps_.empty() ? never : sleeps_.begin()->first;
  for (const Work& work : works_) next = std::min(next, now_ + work.left / speed(work.node));
  if (next == never) return false;
  for (Work& work : works_) work.left -= (next - now_) * speed(work.node);
  now_ = next;
  // Ends that differ by rounding alone come together.
  const auto ended = std::stable_partition(works_.begin(), works_.end(), [](const Work& w) { return w.left > same; });
  for (auto work = ended; work != works_.end(); ++work) make_ready(work->who);
  works_.erase(ended, works_.end());
  while (!sleeps_.empty() && sleeps_.begin()->first <= now_ + same) {
    make_ready(sleeps_.begin()->second);
    sleeps_.erase(sleeps_.begin());
  }
  return true;
}

}  // namespace trireme::plan
