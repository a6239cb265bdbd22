// The emulated GPU: device memory is host memory, and kernels run under cuda/emu when they are launched.
//
// It is stricter than a GPU: each copy looks up its address among the live blocks, so that a host pointer, a freed
// block, or a copy past the end of a block gives a clear error. New memory is full of NaN.
// Read next: cuda/runtime/emulated.cpp.
#pragma once

#include <cstddef>

#include "core/device.h"

namespace trireme::cuda {

/// Makes an emulated GPU with this much memory the backend of Device::cuda while the object lives.
class ScopedEmulatedDevice {
 public:
  explicit ScopedEmulatedDevice(std::size_t memory = std::size_t{1} << 30);
  ~ScopedEmulatedDevice();
  ScopedEmulatedDevice(const ScopedEmulatedDevice&) = delete;
  ScopedEmulatedDevice& operator=(const ScopedEmulatedDevice&) = delete;

 private:
  std::shared_ptr<DeviceBackend> previous_;
};

}  // namespace trireme::cuda
