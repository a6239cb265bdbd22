// Includes every header of an installed Trireme, and calls what tells the version, whether MPI is linked, and the GPUs.
#include "every_header.h"

#include <cstdio>
#include <string>

int main() {
  const std::string text = trireme::version_text("everything");
  std::fputs(text.c_str(), stdout);
  const bool same = text.find("Trireme " TRIREME_VERSION) != std::string::npos;
  const bool no_mpi = trireme::comm::mpi_transport() == nullptr && text.find("MPI           off") != std::string::npos;
  const bool no_gpu = !trireme::cuda::find_devices().problem.empty();
  return same && no_mpi && no_gpu ? 0 : 1;
}
