// What a thread has asked of devices: launches, copies, allocations, and waits. A rank computes on one thread, so the
// difference of two readings is the rank's own work in between. --profile prints it for a step, and
// tests/device/waits_test.cpp limits the waits of a step.
//
// Counted where each happens: launches in launch() (cuda/device/nvcc_launch.h, cuda/emu/launch.cpp) and in calls of
// NVIDIA's libraries, the rest in the backends (cuda/runtime). Collectives of NCCL are not counted.
#pragma once

#include <cstdint>

namespace trireme {

struct DeviceWork {
  std::uint64_t launches = 0;     ///< of kernels; a call of NVIDIA's libraries counts as one
  std::uint64_t copies = 0;       ///< copies to, from and on the device, and fills of bytes
  std::uint64_t allocations = 0;  ///< of device memory
  std::uint64_t waits = 0;        ///< how often the thread waited until the device had done what was queued

  DeviceWork& operator+=(const DeviceWork& more) {
    launches += more.launches;
    copies += more.copies;
    allocations += more.allocations;
    waits += more.waits;
    return *this;
  }
  friend DeviceWork operator-(const DeviceWork& a, const DeviceWork& b) {
    return {a.launches - b.launches, a.copies - b.copies, a.allocations - b.allocations, a.waits - b.waits};
  }
};

/// Of the calling thread, since it began.
inline DeviceWork& device_work() {
  thread_local DeviceWork work;
  return work;
}

}  // namespace trireme
