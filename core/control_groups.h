// What a control group (a container, a SLURM job, a systemd unit) allows this process: often less than the machine has.
// Read next: core/machine_memory.h and core/cores.h, which use it.
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

}  // namespace trireme
