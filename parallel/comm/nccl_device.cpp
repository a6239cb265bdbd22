// launched_gpu(): told from the launcher's environment, before MPI or a GPU is touched.
#include <cstdlib>

#include "core/error.h"
#include "parallel/comm/nccl_group.h"

namespace trireme {
namespace {

/// Open MPI, Hydra, Slurm; -1 when none says.
int local_rank() {
  for (const char* variable : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"})
    if (const char* text = std::getenv(variable)) return std::atoi(text);
  return -1;
}

}  // namespace

int launched_gpu(int visible) {
  if (!under_mpi_launcher() || visible == 1) return 0;
  const int local = local_rank();
  if (local < 0)
    fail(ExitCode::usage, "nccl",
         "the launcher does not say which process of its node this is (OMPI_COMM_WORLD_LOCAL_RANK, MPI_LOCALRANKID, "
         "SLURM_LOCALID); expected one of them, to choose among {} GPUs; show each process one GPU by "
         "CUDA_VISIBLE_DEVICES",
         visible);
  return local % visible;
}

}  // namespace trireme
