// How much host memory this process may use. A control group (a container, a SLURM job, a systemd unit) may allow less
// than the machine has; beyond its limit the system kills the process.
// Read next: train/report/memory.h, which compares a run with it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace trireme {

struct HostMemory {
  std::uint64_t bytes = 0;
  bool of_group = false;  ///< a control group sets the limit
};
/// The machine's memory, or the limit of this process's control group if that is smaller. Swap space does not count.
HostMemory host_memory();

/// The smallest limit of a control group and those above it. `own_groups`: the content of /proc/self/cgroup; `root`:
/// where control groups are mounted, /sys/fs/cgroup. Versions 1 and 2. Nothing if none sets a limit.
std::optional<std::uint64_t> control_group_limit(const std::filesystem::path& root, std::string_view own_groups);

}  // namespace trireme
