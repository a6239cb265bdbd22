#include "parallel/comm/nccl/diagnosis.h"

#include "parallel/comm/common/diagnosis.h"

namespace trireme::comm {

void require_same_operation(const NcclOperation& operation, const ProcessGroup& group, ProgressBoard* board) {
  for (int r = 0; board != nullptr && r < group.size(); ++r) {
    const auto other = board->read(group.world_rank(r));
    if (!other || other->sequence != operation.sequence || other->signature == operation.signature) continue;
    fail(ExitCode::desync, comm::name(operation.signature.kind), "{}",
         out_of_step(group, operation.sequence, group.rank(), operation.signature, r, other->signature));
  }
}

std::string who_is_missing(const NcclOperation& operation, const ProcessGroup& group, ProgressBoard* board) {
  std::vector<int> late, unseen;
  for (int r = 0; r < group.size(); ++r) {
    if (board == nullptr || !board->visible(group.world_rank(r))) {
      unseen.push_back(r);
    } else if (const auto other = board->read(group.world_rank(r)); other && other->sequence < operation.sequence) {
      late.push_back(r);
    }
  }
  std::string text =
      late.empty() ? "every rank seen from here has called it" : "not arrived: " + list_ranks(group, late);
  if (!unseen.empty()) text += "; on other nodes, not seen from here: " + list_ranks(group, unseen);
  return text;
}

}  // namespace trireme::comm
