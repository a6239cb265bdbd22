// The process groups of a --verify run: before every collective the ranks compare what they are about to do (operation,
// number in the group, dtype, count, root and call site), and a difference is an error that names both sides, before
// anything is mixed up. Without --verify the groups compare all of that but the call site, as it costs nothing there;
// two ranks in different layers whose tensors happen to have one size would then go unnoticed.
//
// The comparison is a message of its own each time, so such a run is slow; its numbers are the same bits.
// Read next: parallel/mesh/verify.h, the other half of --verify: equal tensors where the layout says equal.
#pragma once

#include <memory>

#include "parallel/comm/process_group.h"

namespace trireme {

/// `inner` with those checks, and all of its subgroups likewise.
std::shared_ptr<ProcessGroup> verifying(std::shared_ptr<ProcessGroup> inner);

}  // namespace trireme
