// The ranks that a launcher (mpirun, srun) started, one GPU for each, as one NCCL group.
// Read next: parallel/comm/nccl/group.h, parallel/comm/nccl/launch.cpp.
#pragma once

#include <exception>
#include <functional>
#include <memory>

#include "parallel/comm/process_group.h"

namespace trireme {

/// Which of the `visible` GPUs this process should pass to cuda::open_device: its local rank on this node, modulo the
/// number of GPUs. Outside a launcher, where ranks are threads, the first. Throws ExitCode::usage when the launcher
/// does not tell the local rank.
int launched_gpu(int visible);

/// Whether gpu_world() can be made over `host`: the program has NCCL, a launcher started the ranks, and each has its
/// own GPU. Otherwise use staged(). Collective.
bool has_gpu_world(ProcessGroup& host);

/// The world of a launcher's ranks with their tensors on GPUs. `host`: mpi_world(deadline). launched_gpu() must be
/// open. Throws ExitCode::usage when the program was built without NCCL, or when two ranks share a GPU. See
/// comm::NcclOptions. With `fastest` any, NCCL adds, and NVLS is off unless the environment variable NCCL_NVLS_ENABLE
/// is set: sums made in NVSwitch differ from call to call (github.com/NVIDIA/nccl/issues/1497).
std::shared_ptr<ProcessGroup> gpu_world(const std::shared_ptr<ProcessGroup>& host, ProcessGroup::Deadline deadline,
                                        std::function<void(const std::exception_ptr&)> on_failure,
                                        SumOrder fastest = SumOrder::ranks);

}  // namespace trireme
