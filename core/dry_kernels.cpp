// On the CPU, a kernel runs up to its parallel_for(), which does nothing: so it takes the workspace of a real one. A
// GPU's kernels do nothing at all.
#include "core/dry_kernels.h"

#include <cstring>
#include <type_traits>

#include "core/cpu/level.h"
#include "core/dry_run.h"
#include "core/kernels.h"

namespace trireme {
namespace {

bool whole_numbers(DType dtype) { return dtype == DType::i32 || dtype == DType::i64 || dtype == DType::u8; }

/// Whether a copy or a fill of y is made: programs look at whole numbers, and at small tensors.
bool is_made(const Tensor& y) { return whole_numbers(y.dtype()) || y.bytes() <= DryRun::small_bytes; }

template <Device device, auto kernel, class Signature = std::remove_reference_t<decltype(KernelTable{}.*kernel)>>
struct Dry;

template <Device device, auto kernel, class R, class... Args>
struct Dry<device, kernel, R (*)(Args...)> {
  static R call(Args... args) {
    if constexpr (device == Device::cpu) {
      return (cpu::level().kernel_table().*kernel)(args...);
    } else {
      return R();
    }
  }
};

void fill_on_cpu(Tensor& y, double value) {
  if (!is_made(y)) return;
  const DryRun::Computing computing;
  cpu::level().kernel_table().fill(y, value);
}
void copy_on_cpu(const Tensor& x, Tensor& y) {
  if (!is_made(y)) return;
  const DryRun::Computing computing;
  cpu::level().kernel_table().copy(x, y);
}
/// In the memory of a device, programs look at copies alone.
void copy_on_device(const Tensor& x, Tensor& y) {
  if (is_made(y) && x.dtype() == y.dtype() && x.contiguous() && y.contiguous())
    std::memcpy(y.device_address(), x.device_address(), static_cast<std::size_t>(y.bytes()));
}

/// Row n chooses the columns n K, n K + 1, ..: all equally often.
void top_k(const Tensor& x, Tensor& chosen) {
  const std::int64_t rows = chosen.size(0), k = chosen.size(1), columns = x.size(-1);
  auto* const at = static_cast<std::int32_t*>(chosen.device_address());
  for (std::int64_t i = 0; i < rows * k; ++i) at[i] = static_cast<std::int32_t>(i % columns);
}

template <Device device>
KernelTable make_table() {
#define TRIREME_DRY(entry) .entry = Dry<device, &KernelTable::entry>::call,
  KernelTable table = {TRIREME_EVERY_KERNEL(TRIREME_DRY)};
#undef TRIREME_DRY
  if constexpr (device == Device::cpu) table.fill = fill_on_cpu;
  table.copy = device == Device::cpu ? copy_on_cpu : copy_on_device;
  table.top_k = top_k;
  return table;
}

}  // namespace

const KernelTable& dry_kernels(Device device) {
  static const KernelTable of_cpu = make_table<Device::cpu>(), of_cuda = make_table<Device::cuda>();
  return device == Device::cpu ? of_cpu : of_cuda;
}

}  // namespace trireme
