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
void fill(Tensor& y, double value);
void copy(const Tensor& x, Tensor& y);
void unary(Unary op, const Tensor& x, Tensor& y);
void unary_backward(Unary op, const Tensor& x, const Tensor& dy, Tensor& dx);
void binary(Binary op, const Tensor& a, const Tensor& b, Tensor& y);
void axpby(double a, const Tensor& x, double b, Tensor& y);
void dropout(const Tensor& x, double p, std::uint64_t seed, std::uint64_t stream_id, const Rectangle& where, Tensor& y);
void reduce(Reduction op, const Tensor& x, Tensor& y);
ExactSum sum_squares(std::span<const Tensor> xs);
void gemm(const Tensor& a, const Tensor& b, Tensor& c, const GemmOptions& options);
void grouped_gemm(const Tensor& x, const Tensor& matrices, const Tensor& bias, std::span<const std::int64_t> starts,
                  Tensor& y);
void grouped_gemm_tn(const Tensor& a, const Tensor& b, std::span<const std::int64_t> starts, bool accumulate,
                     Tensor& c);
void softmax(const Tensor& x, Tensor& y);
void softmax_backward(const Tensor& y, const Tensor& dy, Tensor& dx);
void top_k(const Tensor& x, Tensor& chosen);
void layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps, Tensor& y, Tensor& mean,
                Tensor& rstd);
void layer_norm_backward(const Tensor& x, const Tensor& gamma, const Tensor& mean, const Tensor& rstd, const Tensor& dy,
                         Tensor& dx, Tensor& dgamma, Tensor& dbeta);
void rms_norm(const Tensor& x, const Tensor& gamma, double eps, Tensor& y, Tensor& rstd);
void rms_norm_backward(const Tensor& x, const Tensor& gamma, const Tensor& rstd, const Tensor& dy, Tensor& dx,
                       Tensor& dgamma);
void embedding(const Tensor& weight, const Tensor& ids, std::int64_t first, Tensor& y);
void embedding_backward(const Tensor& dy, const Tensor& ids, std::int64_t first, Tensor& dweight);
void attention(const Tensor& q, const Tensor& k, const Tensor& v, double scale, bool causal, const Tensor& first_key,
               Tensor& out, Tensor& lse);
void attention_backward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out, const Tensor& lse,
                        const Tensor& dout, double scale, bool causal, const Tensor& first_key, Tensor& dq, Tensor& dk,
                        Tensor& dv);
void attention_merge(const Tensor& part, const Tensor& part_lse, Tensor& out, Tensor& lse);
void rope(const Tensor& x, const Tensor& positions, double base, bool inverse, Tensor& y);
void swiglu(const Tensor& x, Tensor& y);
void swiglu_backward(const Tensor& x, const Tensor& dy, Tensor& dx);
void cross_entropy_stats(const Tensor& logits, const Tensor& targets, const VocabSlice& slice, Tensor& maximum,
                         Tensor& sum_exp, Tensor& target_logit, Tensor& logit_sum);
double cross_entropy_loss(const Tensor& targets, const Tensor& maximum, const Tensor& sum_exp,
                          const Tensor& target_logit, const Tensor& logit_sum, double smoothing, std::int64_t vocab);
void cross_entropy_backward(const Tensor& logits, const Tensor& targets, const VocabSlice& slice, const Tensor& maximum,
                            const Tensor& sum_exp, double smoothing, double scale, Tensor& dlogits);
void adamw(const AdamWOptions& options, std::span<const AdamWUpdate> updates);
void sgd(const SgdOptions& options, std::span<const SgdUpdate> updates);

}  // namespace trireme::cuda
