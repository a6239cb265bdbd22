// Proves a schedule before training, and computes what it costs.
//
// Proved, for the lists of all ranks together:
//   1. every stage forwards every micro-batch once, and backwards it once, after its forward;
//   2. every computation has its messages: what it needs is received before it, what it makes is sent after it;
//   3. every send meets its receive: the two ends of a channel name the micro-batches in one order;
//   4. no deadlock, even when a send completes only once its receive is posted (rendezvous). All messages between two
//      computations of a rank are posted together, and the next computation waits for all of them. A schedule that
//      passes this also runs with buffered sends and with a receive that is waited for right before its computation,
//      as the executor does.
// Read next: parallel/pipeline/timeline.h, parallel/pipeline/executor.h.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/pipeline/schedule.h"

namespace trireme::pipeline {

/// What a proved schedule costs.
struct Proof {
  double bubble_of_ideal = 0;  ///< idle time over busy time: (stages - 1) / microbatches for gpipe and 1f1b
  double bubble_of_total = 0;  ///< idle time over total time
  std::vector<int>
      peak_live;  ///< per stage: most micro-batches forwarded and not yet backwarded, in number of activations kept
  std::int64_t messages = 0;  ///< sent by all ranks in one step
};

/// Throws ExitCode::internal naming the rank, the index of the action in its list and what is missing.
Proof check(const Schedule& schedule);

}  // namespace trireme::pipeline
