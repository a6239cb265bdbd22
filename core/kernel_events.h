// What a call of a kernel is, for profiles and dry runs: its name, its tensors, and the least work it must do: the FLOPs
// of products and attention, and the bytes of its tensors, each read or written once (a tensor updated in place counts
// twice). Read next: core/profiled_kernels.h, core/dry_kernels.cpp.
#pragma once

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <string>
#include <utility>

#include "core/kernels.h"
#include "core/profile.h"

namespace trireme {
namespace detail {

// ---- what a call costs ----------------------------------------------------------------------------------------------

/// Elements in memory: elements repeated by a stride of 0 count once.
inline double elements(const Tensor& x) {
  if (!x.defined()) return 0;
  double count = 1;
  for (int dim = 0; dim < x.dims(); ++dim)
    if (x.strides()[dim] != 0) count *= static_cast<double>(x.size(dim));
  return count;
}
inline double bytes(const Tensor& x) { return x.defined() ? elements(x) * static_cast<double>(size_of(x.dtype())) : 0; }
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
inline double seen(const Tensor& q, const Tensor& k, bool causal) {
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
inline ProfileCost cost_of_reading(std::span<const Tensor> xs) {
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
inline constexpr const char* kernel_name = nullptr;
#define TRIREME_NAME(entry) \
  template <>               \
  inline constexpr const char* kernel_name<&KernelTable::entry> = #entry;
TRIREME_EVERY_KERNEL(TRIREME_NAME)
#undef TRIREME_NAME

/// How many of a call's tensors its description lists: as many as tell one call from another.
template <auto kernel>
inline constexpr int telling = 1;
template <>
inline constexpr int telling<&KernelTable::gemm> = 3;
template <>
inline constexpr int telling<&KernelTable::grouped_gemm> = 2;
template <>
inline constexpr int telling<&KernelTable::grouped_gemm_tn> = 2;
template <>
inline constexpr int telling<&KernelTable::attention> = 2;
template <>
inline constexpr int telling<&KernelTable::attention_backward> = 2;

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

}  // namespace detail

/// The event of a call of KernelTable's entry `kernel` with these arguments.
template <auto kernel, class... Args>
ProfileEvent kernel_event(const Args&... args) {
  detail::Description description{detail::telling<kernel>, {}};
  (description.add(args), ...);
  return {.category = "kernel",
          .name = detail::kernel_name<kernel>,
          .detail = std::move(description.text),
          .cost = detail::Cost<kernel>::of(args...)};
}

}  // namespace trireme
