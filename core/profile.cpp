#include "core/profile.h"

namespace trireme {
namespace {

double between(Profiler::Clock::time_point begin, Profiler::Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

thread_local std::shared_ptr<Profiler> of_this_rank;
thread_local int lane_of_this_thread = 0;

}  // namespace

const std::shared_ptr<Profiler>& Profiler::current() { return of_this_rank; }

void Profiler::set_current(std::shared_ptr<Profiler> profiler, int lane) {
  of_this_rank = std::move(profiler);
  lane_of_this_thread = lane;
}

Profiler* Profiler::recording() {
  Profiler* profiler = of_this_rank.get();
  return profiler != nullptr && profiler->on_.load(std::memory_order_relaxed) ? profiler : nullptr;
}

void Profiler::start(Clock::time_point origin) {
  const std::scoped_lock lock(mutex_);
  events_.clear();
  memory_.clear();
  seconds_ = 0;
  start_ = origin;
  on_since_ = Clock::now();
  on_ = true;
}

void Profiler::stop() {
  const std::scoped_lock lock(mutex_);
  if (on_.exchange(false)) seconds_ += between(on_since_, Clock::now());
}

void Profiler::resume() {
  const std::scoped_lock lock(mutex_);
  if (!on_) on_since_ = Clock::now();
  on_ = true;
}

std::vector<ProfileEvent> Profiler::events() const {
  const std::scoped_lock lock(mutex_);
  return events_;
}

std::vector<MemorySample> Profiler::memory() const {
  const std::scoped_lock lock(mutex_);
  return memory_;
}

void Profiler::add(ProfileEvent event, Clock::time_point began) {
  const Clock::time_point ended = Clock::now();
  event.lane = lane_of_this_thread;
  event.seconds = between(began, ended);
  const std::scoped_lock lock(mutex_);
  if (!on_) return;  // it began while the profiler was on, and would overlap recorded events
  if (watched_ && event.lane == 0) {
    const MemorySample now{between(start_, ended), MemoryPool::current()->on(*watched_)->live()};
    if (memory_.empty() || memory_.back().bytes != now.bytes) memory_.push_back(now);
  }
  event.begin = between(start_, began);
  if (event.begin >= 0) events_.push_back(std::move(event));
}

}  // namespace trireme
