#include "core/profiled_kernels.h"

#include <array>
#include <atomic>

#include "core/device_work.h"
#include "core/kernel_events.h"
#include "core/kernels.h"
#include "core/profile.h"

namespace trireme {
namespace {

std::atomic<bool> enabled = false;
std::array<std::atomic<const KernelTable*>, device_count> tables{};  // the kernels themselves, by device

/// Waits for queued kernels. Not counted: without a profile nothing waits here.
void finish(Device device) {
  if (device == Device::cpu) return;
  const std::uint64_t counted = device_work().waits;
  backend(device).synchronize();
  device_work().waits = counted;
}

template <Device device, auto kernel, class Signature = std::remove_reference_t<decltype(KernelTable{}.*kernel)>>
struct Timed;

template <Device device, auto kernel, class R, class... Args>
struct Timed<device, kernel, R (*)(Args...)> {
  static R call(Args... args) {
    const KernelTable& table = *tables[static_cast<std::size_t>(device)].load();
    if (Profiler::recording() == nullptr) return (table.*kernel)(args...);
    finish(device);
    const ProfileScope scope([&] { return kernel_event<kernel>(args...); });
    if constexpr (std::is_void_v<R>) {
      (table.*kernel)(args...);
      finish(device);
    } else {
      return (table.*kernel)(args...);  // returns a number to the host, so the kernel has ended
    }
  }
};

template <Device device>
KernelTable make_table() {
#define TRIREME_TIMED(entry) .entry = Timed<device, &KernelTable::entry>::call,
  return {TRIREME_EVERY_KERNEL(TRIREME_TIMED)};
#undef TRIREME_TIMED
}

}  // namespace

void profile_kernels(bool on) { enabled = on; }
bool profiles_kernels() { return enabled.load(std::memory_order_relaxed); }

const KernelTable& profiled(Device device, const KernelTable& table) {
  tables[static_cast<std::size_t>(device)] = &table;
  static const KernelTable of_cpu = make_table<Device::cpu>(), of_cuda = make_table<Device::cuda>();
  return device == Device::cpu ? of_cpu : of_cuda;
}

}  // namespace trireme
