#include "ops/plan/clock.h"

#include <algorithm>
#include <limits>

namespace trireme::plan {

Clock::~Clock() {
  while (!alive_.empty()) std::coroutine_handle<>::from_address(*alive_.begin()).destroy();
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

void Clock::begin(int where, const Work& work) {
  Resource& resource = resources_.try_emplace(where, Resource{.room = where < 0 ? 1 : cores_}).first->second;
  advance(resource);
  resource.works.push_back(work);
  resource.threads += work.threads;
  plan_end(where, resource);
}

/// What is left of the works now.
void Clock::advance(Resource& resource) const {
  for (Work& work : resource.works) work.left -= (now_ - resource.since) * resource.speed();
  resource.since = now_;
}

void Clock::plan_end(int where, Resource& resource) {
  if (resource.end) ends_.erase({*resource.end, where});
  resource.end.reset();
  if (resource.works.empty()) return;
  resource.end = now_ + std::ranges::min(resource.works, {}, &Work::left).left / resource.speed();
  ends_.emplace(*resource.end, where);
}

/// To the next moment at which something ends; false if nothing will.
bool Clock::go_on() {
  constexpr double same = 1e-12;  // seconds: ends that differ by rounding alone come together
  if (ends_.empty() && sleeps_.empty()) return false;
  constexpr double never = std::numeric_limits<double>::infinity();
  now_ = std::min(ends_.empty() ? never : ends_.begin()->first, sleeps_.empty() ? never : sleeps_.begin()->first);
  while (!ends_.empty() && ends_.begin()->first <= now_ + same) {
    const int where = ends_.begin()->second;
    Resource& resource = resources_.at(where);
    advance(resource);
    const auto ended =
        std::ranges::stable_partition(resource.works, [](const Work& w) { return w.left > same; }).begin();
    for (auto work = ended; work != resource.works.end(); ++work) {
      resource.threads -= work->threads;
      make_ready(work->who);
    }
    resource.works.erase(ended, resource.works.end());
    plan_end(where, resource);
  }
  while (!sleeps_.empty() && sleeps_.begin()->first <= now_ + same) {
    make_ready(sleeps_.begin()->second);
    sleeps_.erase(sleeps_.begin());
  }
  return true;
}

}  // namespace trireme::plan
