// Opens a GPU as Device::cuda. This header has three implementations; a program links one of them:
//   real.cpp      the CUDA runtime API, when the toolkit was found at configure time;
//   emulated.cpp  host memory, and kernels run by cuda/emu: what the tests link;
//   absent.cpp    a build without CUDA: reports that.
// Read next: core/device.h (what core asks of a device), cuda/runtime/stream.h, cuda/table.cpp (its kernels).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::cuda {

struct DeviceInfo {
  std::string name;
  int major = 0, minor = 0;  ///< compute capability: sm_90 is 9, 0
  int multiprocessors = 0;
  std::int64_t memory = 0;  ///< bytes
};
std::string to_string(const DeviceInfo& info);  ///< "NVIDIA H200, sm_90, 139.8 GiB"

/// The GPUs, or why none is usable: no CUDA in this build, no driver, no device, or all too old.
struct FoundDevices {
  std::vector<DeviceInfo> devices;
  std::string problem;  ///< empty: usable
};
inline constexpr int kOldestMajor = 8;  ///< the kernels need sm_80: cp.async, and mma with bf16
FoundDevices find_devices();

/// Throws ExitCode::usage if no GPU is usable, with the reason and what to do.
void require_device();

/// Makes GPU `index` the backend of Device::cuda; before ranks start. Throws as require_device.
void open_device(int index = 0);

}  // namespace trireme::cuda
