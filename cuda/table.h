// The kernel table of Device::cuda: the functions of core/kernels.h, by the kernels of cuda/kernels.
// Read next: cuda/table.cpp.
#pragma once

#include "core/kernels.h"

namespace trireme::cuda {

/// An entry throws ExitCode::usage for a case without a kernel: "rms_norm has no cuda kernel for f64".
const KernelTable& kernel_table();

}  // namespace trireme::cuda
