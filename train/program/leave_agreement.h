// Whether a signal has asked to leave, in the middle of a sample or of an evaluation, where all ranks must stop at the
// same place. Read next: train/program/signals.h; train/gpt/generate.cpp and train/step/evaluate.cpp, which ask.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "parallel/comm/process_group.h"

namespace trireme {

/// A question that all ranks ask together: has a signal told any of them to leave?
class LeaveAgreement {
 public:
  /// `asked`: of this rank; null: never, the same on all ranks. `world` must outlive this object.
  LeaveAgreement(ProcessGroup& world, std::function<bool()> asked);

  /// Whether `asked` was true on any rank. Call it on all ranks alike, before each token or batch: all get the same
  /// answer. Communicating costs more than a token of a small model, so the ranks communicate about every 50 ms. From
  /// the time that calls have taken so far, they agree on the number of calls in between.
  bool operator()();

 private:
  using Clock = std::chrono::steady_clock;
  bool talk();

  ProcessGroup& world_;
  std::function<bool()> asked_;
  std::int64_t interval_ = 1, until_next_ = 1;  // calls
  Clock::time_point last_ = Clock::now();
};

}  // namespace trireme
