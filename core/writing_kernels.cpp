#include "core/writing_kernels.h"

#include <array>
#include <atomic>
#include <type_traits>

#include "core/kernels.h"

namespace trireme {
namespace {

std::array<std::atomic<const KernelTable*>, device_count> unmarked{};  // the kernels themselves, by device

void mark_result(Tensor& y) { y.mark_written(); }
template <class T>
void mark_result(const T&) {}  // also const Tensor&, which a kernel only reads

template <Device device, auto kernel, class Signature = std::remove_reference_t<decltype(KernelTable{}.*kernel)>>
struct Marking;

template <Device device, auto kernel, class R, class... Args>
struct Marking<device, kernel, R (*)(Args...)> {
  static R call(Args... args) {
    (mark_result(args), ...);
    return (unmarked[static_cast<std::size_t>(device)].load(std::memory_order_acquire)->*kernel)(args...);
  }
};

template <Device device>
constexpr KernelTable make_marking_table() {
#define TRIREME_MARKING(entry) .entry = Marking<device, &KernelTable::entry>::call,
  return {TRIREME_EVERY_KERNEL(TRIREME_MARKING)};
#undef TRIREME_MARKING
}

constexpr KernelTable marking_on_cpu = make_marking_table<Device::cpu>();
constexpr KernelTable marking_on_cuda = make_marking_table<Device::cuda>();

}  // namespace

const KernelTable& marking_results(Device device, const KernelTable& table) {
  std::atomic<const KernelTable*>& held = unmarked[static_cast<std::size_t>(device)];
  // Ranks are threads that share this cache line, so it is written only if the table has changed.
  if (held.load(std::memory_order_relaxed) != &table) held.store(&table, std::memory_order_release);
  return device == Device::cpu ? marking_on_cpu : marking_on_cuda;
}

}  // namespace trireme
