// The kernel tables of dry runs (core/dry_run.h), which kernels() returns in one.
#pragma once

#include "core/device.h"

namespace trireme {

struct KernelTable;

const KernelTable& dry_kernels(Device device);

}  // namespace trireme
