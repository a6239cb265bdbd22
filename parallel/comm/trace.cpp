#include "parallel/comm/trace.h"

#include <utility>

namespace trireme {

// The time that recording takes is not the program's.
void Trace::add(EventKind kind, int index, double host_seconds) {
  events_.push_back({kind, index, host_seconds});
  if (watched_) memory_.push_back(MemoryPool::current()->on(*watched_)->live());
  since_event_.restart();
}

void Trace::kernel(const std::function<ProfileEvent()>& describe, const std::function<void()>& compute) {
  const double host_seconds = since_event_.seconds();
  const ProfileEvent call = describe();
  const auto [place, is_new] = numbers_.try_emplace(identity(call), static_cast<int>(kernels_.size()));
  if (is_new) kernels_.push_back(call);
  if (measure_) measure_(call, compute, marks_);
  add(EventKind::kernel, place->second, host_seconds);
}

int Trace::add_group(const std::string& name, const std::vector<int>& members) {
  groups_.push_back({name, members});
  return static_cast<int>(groups_.size()) - 1;
}

int Trace::start(const Transfer& transfer) {
  const double host_seconds = since_event_.seconds();
  const int index = static_cast<int>(transfers_.size());
  transfers_.push_back(transfer);
  add(EventKind::start, index, host_seconds);
  return index;
}

void Trace::wait(int transfer) { add(EventKind::wait, transfer, since_event_.seconds()); }

void Trace::begin_part(std::string kind, int stage, int micro_batch) {
  parts_.push_back({std::move(kind), stage, micro_batch, events_.size(), events_.size()});
}

Trace Trace::with(std::vector<Group> groups, std::vector<Transfer> transfers, std::vector<Event> events) const {
  Trace other;
  other.kernels_ = kernels_;
  other.groups_ = std::move(groups);
  other.transfers_ = std::move(transfers);
  other.events_ = std::move(events);
  return other;
}

void Trace::mark() { add(EventKind::mark, marks_++, since_event_.seconds()); }

}  // namespace trireme
