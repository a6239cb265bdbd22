// Whether a launcher started this process, told from the environment alone: asking MPI would initialise it, and a
// program that runs its ranks as threads must not.
#include <cstdlib>

#include "parallel/comm/process_group.h"

namespace trireme {
namespace {

int number_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::atoi(text);
}

// Open MPI's mpirun and prterun; launchers that speak PMI (Hydra, srun with PMI-2); srun. Slurm's variables for the
// whole allocation (SLURM_NTASKS) are also set in a batch script that is no rank, those of a step only for ranks.
int launched_ranks() {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (const int ranks = number_in(variable); ranks > 0) return ranks;
  }
  return std::getenv("SLURM_PROCID") != nullptr ? number_in("SLURM_STEP_NUM_TASKS") : 0;
}

}  // namespace

bool under_mpi_launcher() { return launched_ranks() > 0; }

int mpi_launcher_size() { return under_mpi_launcher() ? launched_ranks() : 1; }

}  // namespace trireme
