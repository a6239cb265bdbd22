// The only symbol by which the rest of the program reaches the kernels of a level; compiled once for each.
#include "core/cpu/level.h"

#include "core/cpu/channel_kernels.h"
#include "core/cpu/kernels.h"
#include "core/cpu/machine_speed.h"
#include "core/writing_kernels.h"

namespace trireme::cpu {

const KernelTable& kernel_table() {
  static const KernelTable table = {TRIREME_EVERY_KERNEL(TRIREME_KERNEL_ENTRY)};
  return table;
}

namespace {

const ChannelKernels& channel_kernels_of_level() {
#define TRIREME_CHANNEL_KERNEL_ENTRY(name) cpu::name,
  static const ChannelKernels table = {TRIREME_EVERY_CHANNEL_KERNEL(TRIREME_CHANNEL_KERNEL_ENTRY)};
#undef TRIREME_CHANNEL_KERNEL_ENTRY
  return table;
}

}  // namespace

// TRIREME_LEVEL_SYMBOL and TRIREME_LEVEL_NAME: core/CMakeLists.txt.
extern "C" const Level TRIREME_LEVEL_SYMBOL;
extern "C" const Level TRIREME_LEVEL_SYMBOL = {.name = TRIREME_LEVEL_NAME,
                                               .kernel_table = kernel_table,
                                               .channel_kernels = channel_kernels_of_level,
                                               .measure_machine_speed = level_speed,
                                               .measure_flops = level_flops};

}  // namespace trireme::cpu
