// The process groups of a --verify run. Before every collective the ranks compare operation, number in the group,
// dtype, count, root and call site. A difference is an error that names both sides, before any data is mixed up.
// Without --verify the groups compare all of these except the call site, at no cost. They then do not notice two ranks
// in different layers whose tensors have the same size.
//
// Each comparison is an extra message, so such a run is slow; its results have the same bits.
// Read next: parallel/mesh/verify.h, the other half of --verify: it compares tensors that the layout says are equal.
#pragma once

#include <memory>

#include "parallel/comm/process_group.h"

namespace trireme {

/// `inner` with those checks, also in all its subgroups.
std::shared_ptr<ProcessGroup> verifying(std::shared_ptr<ProcessGroup> inner);

}  // namespace trireme
