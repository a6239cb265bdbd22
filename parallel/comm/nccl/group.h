// A process group over NCCL for tensors on GPUs, one GPU for each rank. Tensors on the host go to the host group that
// it wraps.
//
// A collective, `lazy` or `background`, is queued in a stream of the group when it is called. An event makes it wait
// for the kernels launched so far; in wait(), another event makes later kernels wait for the result. The host never
// waits for the GPU here. Messages (send, recv) have streams of their own: nccl/messages.h.
//
// Sums are made in one of two ways (SumOrder):
//
//   ranks   NCCL only moves elements. The sums are ours: in rank order, 16-bit types in f32 and rounded once, by
//           cuda/kernels/rank_order.h. They have the same bits as in every other process group. An all-reduce is an
//           exchange that brings chunk r of all tensors to rank r, the sum there, and an all-gather of the sums: each
//           rank sends and receives 2 (n-1)/n of the tensor, as in a ring. reduce() always works in this way.
//   any     ncclAllReduce and ncclReduceScatter. They need no buffer, and add one part of a tensor while they send
//           another. NCCL chooses ring or tree by topology and length. All ranks get the same bits, because a finished
//           sum is only copied (github.com/NVIDIA/nccl/issues/855).
//
// Each group of several ranks has a communicator, made and connected with the group. NCCL owns its buffers on the GPU.
// Wrap it in verifying(), not the other way round: over a verifying group only host tensors and messages are checked.
// Read next: parallel/comm/nccl/api.h, parallel/comm/nccl/world.h, parallel/comm/nccl/group.cpp,
// parallel/comm/nccl/messages.h; parallel/comm/nccl/launch.h, which makes the group of a launcher's ranks.
#pragma once

#include <exception>
#include <functional>
#include <memory>

#include "parallel/comm/process_group.h"

namespace trireme::comm {

class NcclApi;
class ProgressBoard;

struct NcclOptions {
  ProcessGroup::Deadline deadline = std::chrono::seconds(30);         ///< of an operation, from its start on the GPU
  ProcessGroup::Deadline connect_deadline = std::chrono::minutes(2);  ///< of making a group and connecting its ranks
  /// Called on the watching thread when the ranks are lost, before anything that waits for the GPU continues with
  /// undefined results. A program should end here; if this returns, later operations throw the error.
  std::function<void(const std::exception_ptr&)> on_failure;
  /// Opens a group's progress board, used in messages. `instance` is the same number for all members of a group.
  std::function<std::unique_ptr<ProgressBoard>(std::uint64_t instance)> open_board;
  SumOrder fastest = SumOrder::ranks;  ///< ProcessGroup::fastest_order() of the group and its subgroups
};

/// Collective: every rank of `host` calls it, each with its own device behind `api`.
std::shared_ptr<ProcessGroup> nccl_group(const std::shared_ptr<ProcessGroup>& host, std::shared_ptr<NcclApi> api,
                                         NcclOptions options);

}  // namespace trireme::comm
