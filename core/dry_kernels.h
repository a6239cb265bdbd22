// The kernels of dry runs (core/dry_run.h), which kernels() returns in one, and what takes the place of a device.
#pragma once

#include <memory>

#include "core/device.h"

namespace trireme {

struct KernelTable;
class Tensor;

const KernelTable& dry_kernels(Device device);  ///< of the device in a dry run
/// Copies what programs look at, and no more.
std::shared_ptr<DeviceBackend> dry_backend();
/// Whether a dry run gives x its numbers: whole ones of up to 64 MiB, others of up to 4 KiB.
bool is_looked_at(const Tensor& x);

}  // namespace trireme
