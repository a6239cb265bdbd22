// What the adapters of cuda/table*.cpp share: checked addresses, sizes as int, and refusals.
//
// An adapter turns one entry of core/kernels.h into launches. If no kernel can do it, it throws and names the entry; it
// never falls back to another way.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "core/kernels.h"
#include "cuda/device/device.h"
#include "cuda/runtime/stream.h"

namespace trireme::cuda {

inline Stream stream() { return static_cast<Stream>(current_stream()); }

/// The first element on the GPU; null for an undefined tensor. Throws for one elsewhere.
inline void* address(std::string_view where, const Tensor& x) {
  if (!x.defined()) return nullptr;
  require(x.device() == Device::cuda, where,
          "a tensor {} is on {}; expected all on cuda; move it with to(Device::cuda)", x.shape(), name(x.device()));
  return x.device_address();
}

/// As address(), for a tensor that must have dtype T.
template <class T>
T* address(std::string_view where, const Tensor& x) {
  void* const first = address(where, x);
  require(!x.defined() || x.dtype() == dtype_of<T>, where, "a tensor {} holds {}; expected {}", x.shape(),
          name(x.dtype()), name(dtype_of<T>));
  return static_cast<T*>(first);
}

/// As address(), for a tensor that must be contiguous.
template <class T>
T* dense(std::string_view where, const Tensor& x) {
  require(!x.defined() || x.contiguous(), where, "a tensor {} with strides {}; expected a dense one", x.shape(),
          x.strides());
  return address<T>(where, x);
}

/// Memory for a kernel's own use, contents undefined. It may be freed once the kernel is queued: the next user's
/// kernels run later.
inline Tensor workspace(const Shape& shape, DType dtype) {
  const MemoryScope scope(MemoryCategory::workspace);
  return Tensor::empty(shape, dtype, Device::cuda);
}

/// Sizes that a kernel takes as int.
inline int size(std::string_view where, std::int64_t value) {
  require(value >= 0 && value <= std::numeric_limits<int>::max(), where, "a size of {}; expected at most {}", value,
          std::numeric_limits<int>::max());
  return static_cast<int>(value);
}

/// Throws for a case that the contract allows but no kernel supports yet.
template <class... Args>
[[noreturn]] void no_kernel(std::string_view entry, fmt::format_string<Args...> what, Args&&... args) {
  fail(ExitCode::usage, "device", "{} has no cuda kernel for {}; use --device cpu", entry,
       fmt::format(what, std::forward<Args>(args)...));
}

/// Calls f(TypeTag<T>{}) for f32, bf16 and f16.
template <class F>
void visit_training(std::string_view entry, DType dtype, F&& f) {
  if (dtype == DType::f32) return f(TypeTag<float>{});
  if (dtype == DType::bf16) return f(TypeTag<bf16>{});
  if (dtype == DType::f16) return f(TypeTag<f16>{});
  no_kernel(entry, "{}", name(dtype));
}

// The adapters, one family a file; contracts: core/kernels.h.
TRIREME_EVERY_KERNEL(TRIREME_DECLARE_KERNEL)

}  // namespace trireme::cuda
