// Checks a schedule before training, and computes its costs.
//
// Checked, for the lists of all ranks together:
//   1. every stage runs the forward of every micro-batch once, then its backward once: whole, or split into the input's
//      part and then the weights' part;
//   2. every computation has its messages: its input is received before it, its output is sent after it. Stages on the
//      same rank exchange no messages; there the order of the list is checked instead;
//   3. every send meets its receive: both ends of a channel list the micro-batches in the same order;
//   4. no deadlock, even when a send completes only once its receive is posted (rendezvous). All messages between two
//      computations of a rank are posted together, and the next computation waits for all of them. A schedule that
//      passes this also runs with buffered sends and with a receive that is waited for right before its computation,
//      as the executor does;
//   5. on every stage backwards run in the order of micro-batches, and so do the weights' parts: gradients are always
//      summed in the same order.
// Read next: parallel/pipeline/drawing.h, parallel/pipeline/executor.h.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/pipeline/timeline.h"

namespace trireme::pipeline {

/// Of a schedule that passed the check.
struct ScheduleCosts {
  double bubble_of_ideal = 0;  ///< idle time over busy time: (P - 1) / M for gpipe and 1f1b
  double bubble_of_total = 0;  ///< idle time over total time
  /// Per rank: the most activations it keeps at once. A stage keeps one from a micro-batch's forward to the end of its
  /// backward (if split, of both parts).
  std::vector<int> peak_live;
  std::vector<int> sent;      ///< messages in one step, per rank that sends them
  std::int64_t messages = 0;  ///< their sum
};

/// Throws ExitCode::internal naming the rank, the index of the action in its list and what is missing.
ScheduleCosts check(const Schedule& schedule, const Costs& costs = {});

}  // namespace trireme::pipeline
