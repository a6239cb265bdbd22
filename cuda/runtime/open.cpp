// The part of cuda/runtime/open.h that all implementations share.
#include "cuda/runtime/open.h"

#include <fmt/format.h>

#include "core/error.h"

namespace trireme::cuda {

std::string to_string(const DeviceInfo& info) {
  return fmt::format("{}, sm_{}{}, {:.1f} GiB", info.name, info.major, info.minor,
                     static_cast<double>(info.memory) / (1024.0 * 1024 * 1024));
}

void require_device() {
  const FoundDevices found = find_devices();
  if (!found.problem.empty()) fail(ExitCode::usage, "device", "--device cuda: {}; or use --device cpu", found.problem);
}

}  // namespace trireme::cuda
