// Proves a schedule before training, and computes what it costs.
//
// Proved, for the lists of all ranks together:
//   1. every stage forwards every micro-batch once, and backwards it once, after its forward: in one piece, or first
//      its input's part, then its weights';
//   2. every computation has its messages: what it needs is received before it, what it makes is sent after it. Between
//      stages on one rank there are none, and the list's order takes their place;
//   3. every send meets its receive: the two ends of a channel name the micro-batches in one order;
//   4. no deadlock, even when a send completes only once its receive is posted (rendezvous). All messages between two
//      computations of a rank are posted together, and the next computation waits for all of them. A schedule that
//      passes this also runs with buffered sends and with a receive that is waited for right before its computation,
//      as the executor does;
//   5. on every stage micro-batches go back in order, and so do the weights' parts: gradients are summed in one order.
// Read next: parallel/pipeline/timeline.h, parallel/pipeline/executor.h.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/timeline.h"

namespace trireme::pipeline {

/// What a proved schedule costs.
struct Proof {
  double bubble_of_ideal = 0;  ///< idle time over busy time: (P - 1) / M for gpipe and 1f1b
  double bubble_of_total = 0;  ///< idle time over total time
  /// Per rank: the most activations it keeps at once, one for each micro-batch that a stage here has forwarded and not
  /// yet backwarded (a split one: all of it).
  std::vector<int> peak_live;
  std::vector<int> sent;      ///< messages in one step, per rank that sends them
  std::int64_t messages = 0;  ///< their sum
};

/// Throws ExitCode::internal naming the rank, the index of the action in its list and what is missing.
Proof check(const Schedule& schedule, const Costs& costs = {});

}  // namespace trireme::pipeline
