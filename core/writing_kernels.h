// The kernel table whose kernels mark the tensors that they write: Tensor::version(). kernels() returns it. Marked are
// the arguments of type Tensor&; the optimizers' kernels get their weights in structs, which optim/ marks.
// Read next: autograd/saved_versions.h, which needs the marks.
#pragma once

#include "core/device.h"

namespace trireme {

struct KernelTable;

/// The marking form of `table`, which is that device's.
const KernelTable& marking_results(Device device, const KernelTable& table);

}  // namespace trireme
