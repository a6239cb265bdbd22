// Tells from the environment alone whether a launcher started this process. Asking MPI would initialise it, which a
// program whose ranks are threads must not do.
#include "parallel/comm/launch_environment.h"
#include "parallel/comm/process_group.h"

namespace trireme {

bool under_mpi_launcher() { return launched_ranks(process_environment) > 0; }

int mpi_launcher_size() {
  const int ranks = launched_ranks(process_environment);
  return ranks > 0 ? ranks : 1;
}

}  // namespace trireme
