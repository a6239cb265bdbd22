// What other ranks of a group have begun, when an operation of NCCL waits for them: for messages. NCCL itself does not
// say. Read next: parallel/comm/progress_board.h.
#pragma once

#include <string>

#include "parallel/comm/nccl/operation.h"
#include "parallel/comm/process_group.h"
#include "parallel/comm/progress_board.h"

namespace trireme::comm {

/// Throws ExitCode::desync if another rank has given `operation`'s number to a different operation. `board`: null if
/// the group has none.
void require_same_operation(const NcclOperation& operation, const ProcessGroup& group, ProgressBoard* board);

/// "not arrived: rank 1 (world rank 5); on other nodes, not seen from here: rank 2 (world rank 9)".
std::string who_is_missing(const NcclOperation& operation, const ProcessGroup& group, ProgressBoard* board);

}  // namespace trireme::comm
