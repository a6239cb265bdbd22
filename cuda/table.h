// The kernel table of Device::cuda: core/kernels.h on the kernels of cuda/kernels.
// Read next: cuda/table.cpp.
#pragma once

#include "core/kernels.h"

namespace trireme::cuda {

/// Entries without a kernel throw ExitCode::usage: "rms_norm has no cuda kernel".
const KernelTable& kernel_table();

}  // namespace trireme::cuda
