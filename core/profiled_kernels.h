// The kernel table with every kernel timed. kernels() returns it after profile_kernels(true). Each call records an
// event with the least work it must do: the FLOPs of products and attention, and the bytes of its tensors, each read or
// written once (a tensor updated in place counts twice). That work per second, compared with the machine's speed, shows
// how good a kernel is. On a GPU each call waits for its kernel, so that the time is the kernel's and not that of its
// launch; such a run is slower. Read next: core/profile.h.
#pragma once

#include "core/device.h"

namespace trireme {

struct KernelTable;

/// For the whole process; call it before ranks start. Kernels are timed only while the rank's Profiler is on.
void profile_kernels(bool on);
bool profiles_kernels();

/// The timed form of `table`, which is that device's.
const KernelTable& profiled(Device device, const KernelTable& table);

}  // namespace trireme
