#include "core/device.h"

#include <array>
#include <utility>

#include "core/dry_kernels.h"
#include "core/dry_run.h"
#include "core/error.h"

namespace trireme {
namespace {

using Backends = std::array<std::shared_ptr<DeviceBackend>, device_count>;

std::shared_ptr<DeviceBackend>& slot(Device device) {
  static Backends backends;
  return backends[static_cast<std::size_t>(device)];
}

}  // namespace

std::string_view name(Device device) { return device == Device::cpu ? "cpu" : "cuda"; }

bool is_available(Device device) { return device == Device::cpu || DryRun::on() || slot(device) != nullptr; }

DeviceBackend& backend(Device device) { return *shared_backend(device); }

std::shared_ptr<DeviceBackend> shared_backend(Device device) {
  require(device != Device::cpu, "device", "the host has no backend; its memory is reached by Tensor::raw()");
  if (DryRun::on()) return dry_backend();
  const std::shared_ptr<DeviceBackend>& found = slot(device);
  if (found == nullptr)
    fail(ExitCode::usage, "device",
         "no {} device was opened; expected one before the first tensor on it; use Device::cpu (--device cpu), or open "
         "a "
         "device as docs/cuda.md says",
         name(device));
  return found;
}

void set_backend(Device device, std::shared_ptr<DeviceBackend> backend) {
  require(device != Device::cpu, "device", "the host's backend cannot be replaced");
  slot(device) = std::move(backend);
}

}  // namespace trireme
