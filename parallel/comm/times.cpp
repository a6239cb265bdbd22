#include "parallel/comm/times.h"

namespace trireme {
namespace {

thread_local std::shared_ptr<CommunicationClock> of_this_rank;

}  // namespace

const std::shared_ptr<CommunicationClock>& CommunicationClock::current() {
  if (of_this_rank == nullptr) of_this_rank = std::make_shared<CommunicationClock>();
  return of_this_rank;
}

void CommunicationClock::set_current(std::shared_ptr<CommunicationClock> clock) { of_this_rank = std::move(clock); }

CommunicationTimes CommunicationClock::read() const {
  return {1e-9 * static_cast<double>(nanoseconds_.load()), 1e-9 * static_cast<double>(exposed_.load())};
}

CommunicationClock::Scope::Scope(Count count)
    : event_("collective", count == Count::operation ? "run" : "wait"), clock_(*current()), count_(count) {}

CommunicationClock::Scope::~Scope() {
  const auto lived = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start_);
  if (count_ != Count::exposed) clock_.nanoseconds_ += lived.count();
  if (count_ != Count::operation) clock_.exposed_ += lived.count();
}

}  // namespace trireme
