// The kernel table with every kernel timed: what kernels() returns once profile_kernels(true) was called. Each call
// leaves an event with the work it cannot avoid: the FLOPs of products and attention, and the bytes of its tensors,
// each read or written once (what is updated in place counts twice). Time over that work, beside what the machine can
// do, says how good a kernel is. On a GPU each call is waited for, so that the time is the kernel's and not that of
// starting it; such a run is slower than another. Read next: core/profile.h.
#pragma once

#include "core/device.h"

namespace trireme {

struct KernelTable;

/// For the whole process; before ranks start. Without a rank's Profiler that is on, kernels run as ever.
void profile_kernels(bool on);
bool profiles_kernels();

/// `table`, of that device, timed.
const KernelTable& profiled(Device device, const KernelTable& table);

}  // namespace trireme
