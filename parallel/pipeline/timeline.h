// A schedule in time: when each computation runs if messages take no time.
// Read next: parallel/pipeline/messages.cpp, parallel/pipeline/drawing.h.
#pragma once

#include <vector>

#include "parallel/pipeline/actions.h"

namespace trireme::pipeline {

/// Units of time of a stage's computations. A backward takes input + weight: two matrix products for each one of
/// forward.
struct Costs {
  int forward = 1, input = 1, weight = 1;
  int of(ActionKind kind) const;  ///< 0 for a message
  /// The total of a micro-batch on a stage.
  int sum(bool backward) const { return forward + (backward ? input + weight : 0); }
};

/// When a computation runs, in the units of Costs.
struct Interval {
  Action action;
  int start = 0, end = 0;
};

/// The computations of every rank, in order. Each runs after the previous one on its rank and after the one that makes
/// its input. The schedule must pass check(); otherwise the lists may end early, at a computation that waits forever.
std::vector<std::vector<Interval>> simulate(const Schedule& schedule, const Costs& costs = {});

}  // namespace trireme::pipeline
