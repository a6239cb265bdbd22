#include "core/control_groups.h"

#include <unistd.h>

#include <sstream>
#include <string>

#include "core/io.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

/// The number that a text begins with; nothing if there is none, as in a file that says "max".
std::optional<std::uint64_t> bytes_in(const std::string& text) {
  std::istringstream words(text);
  std::uint64_t bytes = 0;
  return words >> bytes ? std::optional(bytes) : std::nullopt;
}

/// From "quota period". The quota is "max" (version 2) or -1 (version 1) if there is no limit.
std::optional<double> processors_in(const std::string& text) {
  std::istringstream words(text);
  double quota = 0, period = 0;
  return words >> quota >> period && quota > 0 && period > 0 ? std::optional(quota / period) : std::nullopt;
}

template <class T>
void lower(std::optional<T>& limit, const std::optional<T>& other) {
  if (other && (!limit || *other < *limit)) limit = other;
}

}  // namespace

// A line is NUMBER:CONTROLLERS:PATH. Version 2 has one line, without controllers. In a container the path may be that
// outside, and not be there; the folders above it are then searched, of which the last is the container's own.
ControlGroupLimits control_group_limits(const fs::path& root, std::string_view own_groups) {
  std::istringstream lines{std::string(own_groups)};
  ControlGroupLimits limits;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    for (fs::path folder = fs::path(line.substr(second + 1)).relative_path();; folder = folder.parent_path()) {
      if (controllers == ",,") {
        lower(limits.memory, bytes_in(system_text(root / folder / "memory.max")));
        lower(limits.processors, processors_in(system_text(root / folder / "cpu.max")));
      }
      if (controllers.find(",memory,") != std::string::npos)
        lower(limits.memory, bytes_in(system_text(root / "memory" / folder / "memory.limit_in_bytes")));
      if (controllers.find(",cpu,") != std::string::npos)
        lower(limits.processors, processors_in(system_text(root / "cpu" / folder / "cpu.cfs_quota_us") + " " +
                                               system_text(root / "cpu" / folder / "cpu.cfs_period_us")));
      if (folder.empty()) break;
    }
  }
  return limits;
}

const ControlGroupLimits& control_group_limits() {
  static const ControlGroupLimits limits = control_group_limits("/sys/fs/cgroup", system_text("/proc/self/cgroup"));
  return limits;
}

HostMemory host_memory() {
  const auto machine =
      static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGE_SIZE));
  const auto group = control_group_limits().memory;
  return group && *group < machine ? HostMemory{*group, true} : HostMemory{machine, false};
}

}  // namespace trireme
