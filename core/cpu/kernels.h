// The CPU kernels behind core/kernels.h, which states their contracts. Each family has a file in this folder.
#pragma once

#include "core/kernels.h"

namespace trireme::cpu {

/// What kernels(Device::cpu) returns while nothing is profiled.
const KernelTable& kernel_table();

TRIREME_EVERY_KERNEL(TRIREME_DECLARE_KERNEL)

}  // namespace trireme::cpu
