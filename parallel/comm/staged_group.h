// A process group whose tensors may be on a GPU: it stages them through host memory, over any group that moves host
// memory. Several ranks may share one GPU. Tensors on the host go straight through.
//
//   rank.world = staged(mpi_world(deadline));   // or staged(world) in run_thread_ranks; subgroups are staged too
//
// When it is called, an operation downloads this rank's contribution, after the kernels launched before. The wrapped
// group then works on the host; a background operation does so while the GPU computes. wait() uploads the result.
// Results and errors are those of the wrapped group, bit for bit.
//
// It combines with verifying() in either order: verifying(staged(world)) and staged(verifying(world)).
// Cost: each byte that an operation reads or writes crosses the bus to the host once.
// Read next: parallel/comm/staged_group.cpp; parallel/comm/nccl/group.h, for one GPU for each rank.
#pragma once

#include <memory>

#include "parallel/comm/process_group.h"

namespace trireme {

std::shared_ptr<ProcessGroup> staged(std::shared_ptr<ProcessGroup> host);

}  // namespace trireme
