// launched_gpu(): reads the launcher's environment; initialises neither MPI nor a GPU.
#include "core/error.h"
#include "parallel/comm/launch_environment.h"
#include "parallel/comm/nccl/launch.h"

namespace trireme {

int launched_gpu(int visible) {
  if (!under_mpi_launcher() || visible == 1) return 0;
  const int local = launched_local_rank(process_environment).value_or(-1);
  if (local < 0)
    fail(ExitCode::usage, "nccl",
         "the launcher does not say which process of its node this is (OMPI_COMM_WORLD_LOCAL_RANK, MPI_LOCALRANKID, "
         "SLURM_LOCALID); expected one of them, to choose among {} GPUs; show each process one GPU by "
         "CUDA_VISIBLE_DEVICES",
         visible);
  return local % visible;
}

}  // namespace trireme
