// On the CPU, a kernel runs up to its parallel_for(), which does nothing: so it takes the workspace of a real one. A
// GPU's kernels do nothing at all.
#include "core/dry_kernels.h"

#include <cstring>
#include <limits>
#include <string>
#include <type_traits>

#include "core/cpu/level.h"
#include "core/dry_run.h"
#include "core/error.h"
#include "core/kernel_events.h"
#include "core/kernels.h"

namespace trireme {
namespace {

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
  if (!is_looked_at(y)) return;
  const DryRun::Computing computing;
  cpu::level().kernel_table().fill(y, value);
}
void copy_on_cpu(const Tensor& x, Tensor& y) {
  if (!is_looked_at(y)) return;
  const DryRun::Computing computing;
  cpu::level().kernel_table().copy(x, y);
}
/// In the memory of a device, programs look at copies alone.
void copy_on_device(const Tensor& x, Tensor& y) {
  if (is_looked_at(y) && x.dtype() == y.dtype() && x.contiguous() && y.contiguous())
    std::memcpy(y.device_address(), x.device_address(), static_cast<std::size_t>(y.bytes()));
}

/// Row n chooses the columns n K, n K + 1, ..: all equally often.
void top_k(const Tensor& x, Tensor& chosen) {
  const std::int64_t rows = chosen.size(0), k = chosen.size(1), columns = x.size(-1);
  auto* const at = static_cast<std::int32_t*>(chosen.device_address());
  for (std::int64_t i = 0; i < rows * k; ++i) at[i] = static_cast<std::int32_t>(i % columns);
}

template <Device device>
KernelTable silent_table() {
#define TRIREME_DRY(entry) .entry = Dry<device, &KernelTable::entry>::call,
  KernelTable table = {TRIREME_EVERY_KERNEL(TRIREME_DRY)};
#undef TRIREME_DRY
  if constexpr (device == Device::cpu) table.fill = fill_on_cpu;
  table.copy = device == Device::cpu ? copy_on_cpu : copy_on_device;
  table.top_k = top_k;
  return table;
}

/// Tells the listener first.
template <Device device, auto kernel, class Signature = std::remove_reference_t<decltype(KernelTable{}.*kernel)>>
struct Told;

template <Device device, auto kernel, class R, class... Args>
struct Told<device, kernel, R (*)(Args...)> {
  static R call(Args... args) {
    static const KernelTable table = silent_table<device>();
    if (DryListener* listener = DryRun::listener()) {
      listener->kernel([&] { return kernel_event<kernel>(args...); },
                       [&] {
                         if constexpr (device == Device::cpu) {
                           const DryRun::Computing computing;
                           static_cast<void>((cpu::level().kernel_table().*kernel)(args...));
                         }
                       });
    }
    return (table.*kernel)(args...);
  }
};

template <Device device>
KernelTable make_table() {
#define TRIREME_TOLD(entry) .entry = Told<device, &KernelTable::entry>::call,
  return {TRIREME_EVERY_KERNEL(TRIREME_TOLD)};
#undef TRIREME_TOLD
}

/// Memory of a device is that of the dry run's pool: addresses of the host.
class DryBackend final : public DeviceBackend {
 public:
  std::string description() const override { return "a dry run"; }
  void* allocate(std::size_t bytes) override { return refuse(bytes); }
  void free(void* data) noexcept override { static_cast<void>(data); }
  std::int64_t free_memory() const override { return std::numeric_limits<std::int64_t>::max(); }
  void upload(void* to, const void* from, std::size_t bytes) override { move(to, from, bytes); }
  void download(void* to, const void* from, std::size_t bytes) override { move(to, from, bytes); }
  std::unique_ptr<Download> start_download(void* to, const void* from, std::size_t bytes) override {
    class Done final : public Download {
      void wait() override {}
    };
    move(to, from, bytes);
    return std::make_unique<Done>();
  }
  void copy_on_device(void* to, const void* from, std::size_t bytes) override { move(to, from, bytes); }
  void set(void* to, unsigned char value, std::size_t bytes) override {
    if (bytes <= most_set) std::memset(to, value, bytes);
  }
  void* allocate_pinned(std::size_t bytes) override { return refuse(bytes); }
  void free_pinned(void* data) noexcept override { static_cast<void>(data); }
  void synchronize() override {}
  const KernelTable& kernels() const override { return dry_kernels(Device::cuda); }

 private:
  static constexpr std::size_t most_set = 1 << 20;  // bytes: ids and counts, not weights
  /// Of a tensor that is looked at.
  static void move(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
  [[noreturn]] static void* refuse(std::size_t bytes) {
    fail(ExitCode::internal, "dry_run", "{} bytes asked of a device; in a dry run, memory comes from MemoryPool::dry()",
         bytes);
  }
};

}  // namespace

bool is_looked_at(const Tensor& x) {
  constexpr std::int64_t most = 64 << 20, most_of_others = 4 << 10;  // bytes
  const bool whole_numbers = x.dtype() == DType::i32 || x.dtype() == DType::i64 || x.dtype() == DType::u8;
  return x.bytes() <= (whole_numbers ? most : most_of_others);
}

std::shared_ptr<DeviceBackend> dry_backend() {
  static const auto only = std::make_shared<DryBackend>();
  return only;
}

const KernelTable& dry_kernels(Device device) {
  static const KernelTable of_cpu = make_table<Device::cpu>(), of_cuda = make_table<Device::cuda>();
  return device == Device::cpu ? of_cpu : of_cuda;
}

}  // namespace trireme
