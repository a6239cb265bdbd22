#include "parallel/comm/times.h"

namespace trireme {
namespace {

thread_local std::shared_ptr<CommunicationClock> of_this_rank;
thread_local bool helps = false;  // this thread is not the rank's own

}  // namespace

const std::shared_ptr<CommunicationClock>& CommunicationClock::current() {
  if (of_this_rank == nullptr) of_this_rank = std::make_shared<CommunicationClock>();
  return of_this_rank;
}

void CommunicationClock::set_current(std::shared_ptr<CommunicationClock> clock) {
  of_this_rank = std::move(clock);
  helps = true;
}

CommunicationTimes CommunicationClock::read() const {
  const std::scoped_lock lock(mutex_);
  const auto now = Clock::now();
  return {operations_.seconds(now), exposed_.seconds(now)};
}

void CommunicationClock::Union::open(Clock::time_point now) {
  if (open_++ == 0) begin_ = now;
}

void CommunicationClock::Union::close(Clock::time_point now) {
  if (--open_ == 0) before_ += now - begin_;
}

double CommunicationClock::Union::seconds(Clock::time_point now) const {
  return std::chrono::duration<double>(open_ == 0 ? before_ : before_ + (now - begin_)).count();
}

CommunicationClock::Scope::Scope(Event event)
    : event_("collective", event == Event::run ? "run" : "wait"), clock_(*current()) {
  const std::scoped_lock lock(clock_.mutex_);
  const auto now = Clock::now();
  clock_.operations_.open(now);
  if (!helps) clock_.exposed_.open(now);
}

CommunicationClock::Scope::~Scope() {
  const std::scoped_lock lock(clock_.mutex_);
  const auto now = Clock::now();
  clock_.operations_.close(now);
  if (!helps) clock_.exposed_.close(now);
}

}  // namespace trireme
