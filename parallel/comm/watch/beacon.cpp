#include "parallel/comm/watch/beacon.h"

#include <unistd.h>

#include <utility>

#include "parallel/comm/call_site.h"
#include "parallel/comm/watch/vital_signs.h"

namespace trireme {

namespace {

constinit thread_local std::string_view call_site = "the program";

}  // namespace

std::string_view CallSite::current() { return call_site; }

std::string_view CallSite::enter(std::string_view name) {
  Heartbeat::beat();
  if (const auto& beacon = watch::Beacon::current()) beacon->page().site.write(watch::FixedText<40>(name));
  return std::exchange(call_site, name);
}

namespace watch {
namespace {

thread_local std::shared_ptr<Beacon> of_this_rank;
// The same beacon as a raw pointer: when MPI is finalised at exit, the shared_ptr above is already destroyed.
thread_local Beacon* mine = nullptr;

}  // namespace

std::int64_t nanoseconds_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

std::int64_t own_nanoseconds() { return nanoseconds_now() - waited_for_processor(); }

Beacon::Beacon(std::shared_ptr<RankPages> pages, int rank, std::int64_t (*clock)())
    : pages_(std::move(pages)), rank_(rank), page_(pages_->page(rank)), clock_(clock) {
  const ThreadId self = this_thread();
  page_.process = self.process;
  page_.thread = self.thread;
  page_.process_space = self.space;
  page_.place.write(FixedText<64>(fmt::format("rank {}", rank)));
  page_.site.write(FixedText<40>(CallSite::current()));
  page_.state = RankState::running;
}

Beacon::~Beacon() = default;

const std::shared_ptr<Beacon>& Beacon::current() { return of_this_rank; }

void Beacon::set_current(std::shared_ptr<Beacon> beacon) {
  Heartbeat::set_current(beacon ? &beacon->page_.beats : nullptr);
  mine = beacon.get();
  of_this_rank = std::move(beacon);
}

void Beacon::set_place(std::string_view place, int work) {
  page_.place.write(FixedText<64>(place));
  page_.work = work;
}

void Beacon::begin_step(std::int64_t step) {
  Heartbeat::beat();
  if (times_.step >= 0) page_.times[static_cast<std::size_t>(times_.step) % RankPage::steps].write(times_);
  times_ = {step, {}};
  page_.step = step;
}

void Beacon::show_waits() {
  Waiting waiting;
  {
    const std::scoped_lock lock(mutex_);
    for (const Wait* wait : waits_) {
      waiting.record = wait->number_;  // if there are several, the one begun last
      for (const int rank : wait->missing_(wait->context_)) waiting.add(rank);
    }
  }
  waiting.blocked = blocked_ > 0;  // possibly for a communication thread that is not waiting itself
  page_.waiting.write(waiting);
  page_.watchdog_ticks.fetch_add(1, std::memory_order_relaxed);
}

Blocked::Blocked() : beacon_(mine != nullptr && mine->owner_ == std::this_thread::get_id() ? mine : nullptr) {
  if (beacon_ == nullptr) return;
  start_ = beacon_->clock_();
  ++beacon_->blocked_;
}

Blocked::~Blocked() {
  if (beacon_ == nullptr) return;
  beacon_->blocked_nanoseconds_ += beacon_->clock_() - start_;
  Heartbeat::beat();  // first: a reader that sees it unblocked must also see this beat
  --beacon_->blocked_;
}

PhaseScope::PhaseScope(Phase phase) : beacon_(mine), phase_(static_cast<int>(phase)) {
  if (beacon_ == nullptr) return;
  Heartbeat::beat();
  outer_ = beacon_->page_.phase;
  turn(phase_);
  start_ = beacon_->clock_();
  blocked_before_ = beacon_->blocked_nanoseconds_;
}

PhaseScope::~PhaseScope() {
  if (beacon_ == nullptr) return;
  Heartbeat::beat();
  // Time spent waiting for other ranks does not count. It is subtracted from the enclosing phases too.
  const std::int64_t all = beacon_->clock_() - start_;
  const std::int64_t own = all - (beacon_->blocked_nanoseconds_ - blocked_before_);
  beacon_->times_.seconds[static_cast<std::size_t>(phase_)] += static_cast<float>(1e-9 * static_cast<double>(own));
  beacon_->blocked_nanoseconds_ = blocked_before_ + all;
  turn(outer_);
}

void PhaseScope::turn(int phase) { beacon_->page_.phase.store(phase, std::memory_order_relaxed); }

Recording::Recording(Record record) : beacon_(mine), record_(record) {
  if (beacon_ == nullptr) return;
  Heartbeat::beat();
  RankPage& page = beacon_->page();
  record_.number = page.recorded.fetch_add(1, std::memory_order_relaxed) + 1;
  record_.begun = nanoseconds_now();
  record_.step = page.step.load(std::memory_order_relaxed);
  record_.phase = static_cast<std::int8_t>(page.phase.load(std::memory_order_relaxed));
  page.ring[record_.number % RankPage::records].write(record_);
}

Recording::~Recording() {
  if (beacon_ == nullptr) return;
  Heartbeat::beat();
  RankPage& page = beacon_->page();
  if (page.recorded.load(std::memory_order_relaxed) >= record_.number + RankPage::records) return;  // overwritten
  record_.ended = nanoseconds_now();
  page.ring[record_.number % RankPage::records].write(record_);
}

void Wait::lasts() {
  if (beacon_ != nullptr || mine == nullptr) return;
  beacon_ = mine;
  const std::scoped_lock lock(beacon_->mutex_);
  beacon_->waits_.push_back(this);
}

Wait::~Wait() {
  if (beacon_ == nullptr) return;
  Heartbeat::beat();  // before the wait is removed, as in ~Blocked
  const std::scoped_lock lock(beacon_->mutex_);
  beacon_->waits_.remove(this);
}

}  // namespace watch
}  // namespace trireme
