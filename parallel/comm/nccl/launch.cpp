// gpu_world() and has_gpu_world(): NCCL groups over a launcher's processes, with the node's progress board.
#include <cstdlib>
#include <set>
#include <span>
#include <string>

#include "core/error.h"
#include "core/hash.h"
#include "parallel/comm/nccl/api.h"
#include "parallel/comm/nccl/group.h"
#include "parallel/comm/nccl/launch.h"
#include "parallel/comm/progress_board.h"
#include "parallel/comm/values.h"

namespace trireme {

bool has_gpu_world(ProcessGroup& host) {
  if (!comm::built_with_nccl() || !under_mpi_launcher()) return false;
  Hasher hasher;
  const std::string device = comm::nccl_library()->device();
  hasher.add(std::as_bytes(std::span(device)));
  const std::vector<std::uint64_t> hashes = all_gather_values(host, hasher.value());
  return std::set<std::uint64_t>(hashes.begin(), hashes.end()).size() == hashes.size();
}

std::shared_ptr<ProcessGroup> gpu_world(const std::shared_ptr<ProcessGroup>& host, ProcessGroup::Deadline deadline,
                                        std::function<void(const std::exception_ptr&)> on_failure, SumOrder fastest) {
  if (!under_mpi_launcher())
    fail(ExitCode::usage, "nccl",
         "the {} ranks of this process share one GPU; expected a process and a GPU for each rank; start them with "
         "mpirun or srun, or stage through the host",
         host->size());
  if (fastest == SumOrder::any) setenv("NCCL_NVLS_ENABLE", "0", 0);
  return comm::nccl_group(host, comm::nccl_library(),
                          {.deadline = deadline,
                           .on_failure = std::move(on_failure),
                           .open_board = [](std::uint64_t instance) { return comm::mpi_progress_board(instance); },
                           .fastest = fastest});
}

}  // namespace trireme
