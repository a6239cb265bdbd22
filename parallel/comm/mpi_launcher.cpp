// Whether a launcher started this process, told from the environment alone: asking MPI would initialise it, and a
// program that runs its ranks as threads must not.
#include "parallel/comm/launch_environment.h"
#include "parallel/comm/process_group.h"

namespace trireme {

bool under_mpi_launcher() { return launched_ranks(process_environment) > 0; }

int mpi_launcher_size() {
  const int ranks = launched_ranks(process_environment);
  return ranks > 0 ? ranks : 1;
}

}  // namespace trireme
