// One rank of a world that is not there, for a dry run (core/dry_run.h): the rank's program makes its collectives, and
// nothing is sent.
//
// What programs look at, whole numbers and small tensors, becomes what it would be if every rank had what this one has:
// a sum is `size` times this rank's number, and an all-to-all gives the rank its own counts back. Other tensors are
// left as they are. Read next: core/dry_kernels.cpp, train/step/rank_memory.h.
#pragma once

#include <memory>

#include "parallel/comm/process_group.h"

namespace trireme {

/// The world of `ranks` ranks, as rank `rank` sees it.
std::shared_ptr<ProcessGroup> dry_world(int ranks, int rank);

}  // namespace trireme
