// gpu_world(): the launcher's processes, NCCL and the board of the node put together.
#include "core/error.h"
#include "parallel/comm/nccl_api.h"
#include "parallel/comm/nccl_group.h"
#include "parallel/comm/progress_board.h"

namespace trireme {

std::shared_ptr<ProcessGroup> gpu_world(const std::shared_ptr<ProcessGroup>& host, ProcessGroup::Deadline deadline,
                                        std::function<void(const std::exception_ptr&)> on_failure) {
  if (!under_mpi_launcher())
    fail(ExitCode::usage, "nccl",
         "the {} ranks of this process share one GPU; expected a process and a GPU for each rank; start them with "
         "mpirun or srun, or stage through the host",
         host->size());
  return comm::nccl_group(host, comm::nccl_library(),
                          {.deadline = deadline,
                           .on_failure = std::move(on_failure),
                           .open_board = [](std::uint64_t instance) { return comm::mpi_progress_board(instance); }});
}

}  // namespace trireme
