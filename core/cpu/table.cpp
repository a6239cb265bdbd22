// The CPU's kernel table. Read next: the kernels themselves, each family in a file of this folder.
#include "core/cpu/kernels.h"
#include "core/profiled_kernels.h"

namespace trireme {

const KernelTable& cpu::kernel_table() {
  static const KernelTable table = {TRIREME_EVERY_KERNEL(TRIREME_KERNEL_ENTRY)};
  return table;
}

const KernelTable& kernels(Device device) {
  const KernelTable& table = device == Device::cpu ? cpu::kernel_table() : backend(device).kernels();
  return profiles_kernels() ? profiled(device, table) : table;
}

}  // namespace trireme
