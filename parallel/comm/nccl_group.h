// A process group for tensors on GPUs, one GPU for each rank, over NCCL. Tensors on the host go to the host group that
// it is made over.
//
// Collectives are queued in a stream of the group when they are called, `lazy` or in the `background` alike, after
// the kernels launched so far (an event); wait() makes later kernels wait for the result (another event). The host
// never waits for the GPU here. Messages (send, recv) have streams of their own: nccl_messages.h.
//
// NCCL promises neither an order of summation nor f32 sums of 16-bit types. So it only moves elements here, and the
// sums are ours: in rank order, 16-bit types in f32 and rounded once, by cuda/kernels/rank_order.h. They have the bits
// of every other process group's. An all-reduce is an exchange that brings chunk r of all tensors to rank r, the sum
// there, and an all-gather of the sums: 2 (n-1)/n of the tensor sent and received per rank, what a ring sends too.
//
// Each group of several ranks has a communicator, made and connected with the group: its buffers on the GPU are NCCL's.
// verifying() goes on top; a group over a verifying one checks its host tensors and messages only.
// Read next: parallel/comm/nccl_api.h, parallel/comm/nccl_world.h, parallel/comm/nccl_group.cpp, nccl_messages.h.
#pragma once

#include <exception>
#include <functional>
#include <memory>

#include "parallel/comm/process_group.h"

namespace trireme {

namespace comm {

class NcclApi;
class ProgressBoard;

struct NcclOptions {
  ProcessGroup::Deadline deadline = std::chrono::seconds(30);         ///< of an operation, from its turn on the GPU
  ProcessGroup::Deadline connect_deadline = std::chrono::minutes(2);  ///< of making a group, whose ranks connect then
  /// Tells, from the watching thread, that the ranks are lost, before anything that waits for the GPU goes on with
  /// undefined results. A program ends here; when this returns, later operations throw the error.
  std::function<void(const std::exception_ptr&)> on_failure;
  /// What the ranks show each other, for messages; `instance` is one number for all members of a group.
  std::function<std::unique_ptr<ProgressBoard>(std::uint64_t instance)> open_board;
};

/// Collective: every rank of `host` calls it, each with a device of its own behind `api`.
std::shared_ptr<ProcessGroup> nccl_group(const std::shared_ptr<ProcessGroup>& host, std::shared_ptr<NcclApi> api,
                                         NcclOptions options);

}  // namespace comm

/// Which of the `visible` GPUs this process opens: its place among the launcher's processes of this node, counted round
/// where there are more processes than GPUs. Outside a launcher, where ranks are threads, the first. Throws
/// ExitCode::usage when the launcher does not say which place that is. Call cuda::open_device with it.
int launched_gpu(int visible);

/// Whether gpu_world() can be made over `host`: the program has NCCL, a launcher started the ranks, and each of them
/// has a GPU of its own. Otherwise there is staged(). Collective.
bool has_gpu_world(ProcessGroup& host);

/// The world of a launcher's ranks with their tensors on GPUs. `host`: mpi_world(deadline); launched_gpu() is open.
/// Throws ExitCode::usage when the program was built without NCCL, or when two ranks have one GPU. See NcclOptions.
std::shared_ptr<ProcessGroup> gpu_world(const std::shared_ptr<ProcessGroup>& host, ProcessGroup::Deadline deadline,
                                        std::function<void(const std::exception_ptr&)> on_failure);

}  // namespace trireme
