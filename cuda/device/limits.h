// What a device allows, and the rule that launch() follows for shared memory. Both implementations of the device header
// use it: cuda/device/nvcc_launch.h asks the device once, and the emulator has profiles of devices.
// Read next: cuda/emu/launch.h.
#pragma once

#include <cstddef>

namespace trireme::cuda {

struct DeviceLimits {
  int major = 0, minor = 0;  ///< compute capability
  int multiprocessors = 0;
  std::size_t shared_per_block = 0;  ///< bytes, static and dynamic together, for a kernel that has opted in
};

/// Bytes of shared memory, static and dynamic together, of a block whose kernel has not opted in to more by
/// cudaFuncAttributeMaxDynamicSharedMemorySize. The same on all devices. (CUDA C++ Programming Guide, "Compute
/// Capabilities".)
inline constexpr std::size_t kSharedByDefault = 48 * 1024;

/// True if launch() opts the kernel in. Every kernel with dynamic memory needs it, because the kernel's static memory
/// counts as well, and the caller does not know how much that is.
constexpr bool needs_shared_opt_in(std::size_t dynamic_bytes) { return dynamic_bytes > 0; }

}  // namespace trireme::cuda
