// Sums over ranks without rounding: the result does not depend on how the terms are spread over the ranks. Read next:
// core/exact_sum.h.
#pragma once

#include "core/exact_sum.h"
#include "parallel/comm/process_group.h"

namespace trireme {

/// Replaces `sum` by the sum over all ranks of the group. Collective.
void all_reduce(ExactSum& sum, ProcessGroup& group);

}  // namespace trireme
