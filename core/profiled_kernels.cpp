#include "core/profiled_kernels.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <span>

#include "core/device_work.h"
#include "core/kernels.h"
#include "core/profile.h"

namespace trireme {
namespace {

std::atomic<bool> enabled = false;
std::array<std::atomic<const KernelTable*>, device_count> tables{};  // the kernels themselves, by device

// ---- what a call costs ----------------------------------------------------------------------------------------------

/// Elements in memory: elements repeated by a stride of 0 count once.
double elements(const Tensor& x) {
  if (!x.defined()) return 0;
  double count = 1;
  for (int dim = 0; dim < x.dims(); ++dim)
    if (x.strides()[dim] != 0) count *= static_cast<double>(x.size(dim));
  return count;
}
double bytes(const Tensor& x) { return x.defined() ? elements(x) * static_cast<double>(size_of(x.dtype())) : 0; }
template <class T>
double bytes(const T&) {
  return 0;
}

/// Most kernels: little arithmetic, and each tensor once.
template <auto kernel>
struct Cost {
  template <class... Args>
  static ProfileCost of(const Args&... args) {
    return {.flops = 0, .bytes = (bytes(args) + ...)};
  }
};

template <>
struct Cost<&KernelTable::gemm> {
  static ProfileCost of(const Tensor& a, const Tensor& b, const Tensor& c, const GemmOptions& options) {
    const double written = bytes(c) * (options.beta == 0 ? 1 : 2);
    return {.flops = 2 * static_cast<double>(c.count()) * static_cast<double>(a.size(-1)),
            .bytes = bytes(a) + bytes(b) + written + bytes(options.bias) + bytes(options.pre_activation) +
                     bytes(options.residual) + bytes(options.row_sums),
            .dtype = a.dtype()};
  }
};

template <>
struct Cost<&KernelTable::grouped_gemm> {
  static ProfileCost of(const Tensor& x, const Tensor& matrices, const Tensor& bias, std::span<const std::int64_t>,
                        const Tensor& y) {
    return {.flops = 2 * static_cast<double>(y.count()) * static_cast<double>(x.size(1)),
            .bytes = bytes(x) + bytes(matrices) + bytes(bias) + bytes(y),
            .dtype = x.dtype()};
  }
};
template <>
struct Cost<&KernelTable::grouped_gemm_tn> {
  static ProfileCost of(const Tensor& a, const Tensor& b, std::span<const std::int64_t>, bool accumulate,
                        const Tensor& c) {
    return {.flops = 2 * static_cast<double>(a.count()) * static_cast<double>(b.size(1)),
            .bytes = bytes(a) + bytes(b) + bytes(c) * (accumulate ? 2 : 1),
            .dtype = a.dtype()};
  }
};

/// Pairs of a query and a key it sees, times their head dim, summed over heads. Documents are ignored.
double seen(const Tensor& q, const Tensor& k, bool causal) {
  const double queries = static_cast<double>(q.size(1)), keys = static_cast<double>(k.size(1));
  const double pairs = causal ? std::max(0.0, queries * (keys - (queries - 1) / 2)) : queries * keys;
  return pairs * static_cast<double>(q.size(0) * q.size(2) * q.size(3));
}
template <>
struct Cost<&KernelTable::attention> {
  static ProfileCost of(const Tensor& q, const Tensor& k, const Tensor& v, const ScoreRule&, bool causal,
                        const Tensor& first_key, const Tensor& out, const Tensor& lse) {
    return {.flops = 4 * seen(q, k, causal),  // q k^T and p v
            .bytes = bytes(q) + bytes(k) + bytes(v) + bytes(first_key) + bytes(out) + bytes(lse),
            .dtype = q.dtype()};
  }
};
template <>
struct Cost<&KernelTable::attention_backward> {
  static ProfileCost of(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out, const Tensor& lse,
                        const Tensor& dout, const ScoreRule&, bool causal, const Tensor& first_key, const Tensor& dq,
                        const Tensor& dk, const Tensor& dv) {
    return {.flops = 10 * seen(q, k, causal),  // q k^T again, dout v^T, and the three gradients
            .bytes = bytes(q) + bytes(k) + bytes(v) + bytes(out) + bytes(lse) + bytes(dout) + bytes(first_key) +
                     bytes(dq) + bytes(dk) + bytes(dv),
            .dtype = q.dtype()};
  }
};

template <>
struct Cost<&KernelTable::axpby> {
  static ProfileCost of(double, const Tensor& x, double b, const Tensor& y) {
    return {.flops = 0, .bytes = bytes(x) + bytes(y) * (b == 0 ? 1 : 2)};
  }
};
template <>
struct Cost<&KernelTable::multiply_by> {
  static ProfileCost of(const Tensor&, const Tensor&) { return {}; }  // a factor of 1, as in training, moves nothing
};
ProfileCost cost_of_reading(std::span<const Tensor> xs) {
  ProfileCost cost;
  for (const Tensor& x : xs) cost.bytes += bytes(x);
  return cost;
}
template <>
struct Cost<&KernelTable::sum_squares> {
  static ProfileCost of(std::span<const Tensor> xs) { return cost_of_reading(xs); }
};
template <>
struct Cost<&KernelTable::squares_to> {
  static ProfileCost of(std::span<const Tensor> xs, const Tensor&) { return cost_of_reading(xs); }
};
template <>
struct Cost<&KernelTable::adamw> {
  static ProfileCost of(const AdamWOptions&, std::span<const AdamWUpdate> updates) {
    ProfileCost cost;
    for (const AdamWUpdate& u : updates)
      cost.bytes += bytes(u.gradient) + 2 * (bytes(u.weight) + bytes(u.m) + bytes(u.v)) + bytes(u.low);
    return cost;
  }
};
template <>
struct Cost<&KernelTable::sgd> {
  static ProfileCost of(const SgdOptions&, std::span<const SgdUpdate> updates) {
    ProfileCost cost;
    for (const SgdUpdate& u : updates)
      cost.bytes += bytes(u.gradient) + 2 * (bytes(u.weight) + bytes(u.momentum)) + bytes(u.low);
    return cost;
  }
};

// ---- the description of a call --------------------------------------------------------------------------------------

template <auto kernel>
constexpr const char* kernel_name = nullptr;
#define TRIREME_NAME(entry) \
  template <>               \
  constexpr const char* kernel_name<&KernelTable::entry> = #entry;
TRIREME_EVERY_KERNEL(TRIREME_NAME)
#undef TRIREME_NAME

/// How many of a call's tensors its description lists: as many as tell one call from another.
template <auto kernel>
constexpr int telling = 1;
template <>
constexpr int telling<&KernelTable::gemm> = 3;
template <>
constexpr int telling<&KernelTable::grouped_gemm> = 2;
template <>
constexpr int telling<&KernelTable::grouped_gemm_tn> = 2;
template <>
constexpr int telling<&KernelTable::attention> = 2;
template <>
constexpr int telling<&KernelTable::attention_backward> = 2;

struct Description {
  int left;
  std::string text;

  void add(const Tensor& x) {
    if (!x.defined() || left-- <= 0) return;
    if (text.empty()) text = name(x.dtype());
    fmt::format_to(std::back_inserter(text), " [{}]", fmt::join(x.shape().begin(), x.shape().end(), ", "));
  }
  template <class T>
  void add(std::span<const T> list) {
    if (left > 0) text = fmt::format("of {} tensors", list.size());
  }
  template <class T>
  void add(const T&) {}
};

template <auto kernel, class... Args>
ProfileEvent event_of(const Args&... args) {
  Description description{telling<kernel>, {}};
  (description.add(args), ...);
  return {.category = "kernel",
          .name = kernel_name<kernel>,
          .detail = std::move(description.text),
          .cost = Cost<kernel>::of(args...)};
}

// ---- the table ------------------------------------------------------------------------------------------------------

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
    const ProfileScope scope([&] { return event_of<kernel>(args...); });
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
