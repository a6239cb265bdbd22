// What a control group (a container, a SLURM job, a systemd unit) allows this process: often less than the machine has.
// Beyond its limit of memory the system kills the process.
// Read next: core/cores.h and train/validate/memory_limit.h, which use it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

namespace trireme {

/// Not set: no control group sets a limit.
struct ControlGroupLimits {
  std::optional<std::uint64_t> memory;  ///< bytes
  std::optional<double> processors;     ///< seconds of processor time per second
};
/// The smallest limits of a control group and those above it. `own_groups`: the content of /proc/self/cgroup; `root`:
/// where control groups are mounted, /sys/fs/cgroup. Versions 1 and 2.
ControlGroupLimits control_group_limits(const std::filesystem::path& root, std::string_view own_groups);
/// Those of this process, read once.
const ControlGroupLimits& control_group_limits();

/// How much host memory this process may use.
struct HostMemory {
  std::uint64_t bytes = 0;
  bool of_group = false;  ///< a control group sets the limit
};
/// The machine's memory, or the limit of this process's control group if that is smaller. Swap space does not count.
HostMemory host_memory();

}  // namespace trireme
