// MessageGroup: a process group that builds its collectives from messages, by a chosen algorithm. Its messages may take
// the time of artificial links.
//
//   rank.world = with_algorithm(rank.world, {.algorithm = comm::Algorithm::ring});   // its subgroups too
//
// Without a network and with Algorithm::exact the group is returned as it is: the collectives of its transport then
// make exact sums. Sums in rank order (SumOrder::ranks) are always made as `exact` makes them, with the bits of the
// transport's own: see algorithm.h.
// Read next: parallel/comm/algorithms/message_group.cpp, parallel/comm/algorithms/network.h.
#pragma once

#include <memory>

#include "parallel/comm/algorithms/algorithm.h"
#include "parallel/comm/algorithms/network.h"

namespace trireme::comm {

struct AlgorithmOptions {
  Algorithm algorithm = Algorithm::exact;
  /// Shared by all ranks of the process. Null: messages take no artificial time.
  std::shared_ptr<Network> network = {};
  bool exact_sums = false;  ///< sums are in rank order, even if the caller allows any
};

/// Throws ExitCode::usage, naming the group, if the algorithm cannot serve it or one of its subgroups.
std::shared_ptr<ProcessGroup> with_algorithm(std::shared_ptr<ProcessGroup> group, const AlgorithmOptions& options);

}  // namespace trireme::comm
