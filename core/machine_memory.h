// How much host memory this process may use. A control group (a container, a SLURM job, a systemd unit) may allow less
// than the machine has; beyond its limit the system kills the process.
// Read next: train/validate/memory_limit.h, which compares a run with it.
#pragma once

#include <cstdint>

namespace trireme {

struct HostMemory {
  std::uint64_t bytes = 0;
  bool of_group = false;  ///< a control group sets the limit
};
/// The machine's memory, or the limit of this process's control group if that is smaller. Swap space does not count.
HostMemory host_memory();

}  // namespace trireme
