#include "core/machine_memory.h"

#include <unistd.h>

#include "core/control_groups.h"

namespace trireme {

HostMemory host_memory() {
  const auto machine =
      static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGE_SIZE));
  const auto group = control_group_limits().memory;
  return group && *group < machine ? HostMemory{*group, true} : HostMemory{machine, false};
}

}  // namespace trireme
