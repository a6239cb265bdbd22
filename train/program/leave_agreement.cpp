#include "train/program/leave_agreement.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace trireme {

LeaveAgreement::LeaveAgreement(ProcessGroup& world, std::function<bool()> asked)
    : world_(world), asked_(std::move(asked)) {}

bool LeaveAgreement::operator()() {
  if (!asked_) return false;
  if (world_.size() == 1) return asked_();
  if (--until_next_ > 0) return false;
  return talk();
}

bool LeaveAgreement::talk() {
  constexpr std::int64_t microseconds = 50'000, most = 32;
  const auto spent = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - last_).count();
  const std::array<std::int64_t, 2> mine = {asked_() ? 1 : 0, spent};
  const Tensor sums = Tensor::from(std::span<const std::int64_t>(mine), {2});
  world_.all_reduce(sums).wait();
  const std::int64_t leave = sums.data<std::int64_t>()[0], spent_by_all = sums.data<std::int64_t>()[1];
  const std::int64_t per_call = std::max<std::int64_t>(spent_by_all / (world_.size() * interval_), 1);
  interval_ = std::clamp<std::int64_t>(microseconds / per_call, 1, std::min(most, 2 * interval_));
  until_next_ = interval_;
  last_ = Clock::now();
  return leave > 0;
}

}  // namespace trireme
