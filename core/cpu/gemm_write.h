// The last step of a product: alpha, beta, bias and the conversion to C's dtype, one row of a tile at a time; then the
// epilogue, on a whole tile.
// Read next: core/cpu/gemm_packed.cpp.
#pragma once

#include <algorithm>
#include <array>

#include "core/cpu/gemm.h"
#include "core/cpu/unary_rows.h"

namespace trireme::cpu {

/// c[j] = alpha sum[j] + beta c[j] + bias[j]; beta = 0 ignores what c holds; bias may be null.
template <class Out, class In, class T>
[[gnu::always_inline]] inline void write_row(const T* __restrict sum, std::int64_t columns, T alpha, T beta,
                                             const In* __restrict bias, Out* __restrict c) {
  if (beta == 0 && bias == nullptr) {
    for (std::int64_t j = 0; j < columns; ++j) c[j] = static_cast<Out>(alpha * sum[j]);
  } else if (bias == nullptr) {
    for (std::int64_t j = 0; j < columns; ++j) c[j] = static_cast<Out>(alpha * sum[j] + beta * static_cast<T>(c[j]));
  } else if (beta == 0) {
    for (std::int64_t j = 0; j < columns; ++j) c[j] = static_cast<Out>(alpha * sum[j] + static_cast<T>(bias[j]));
  } else {
    for (std::int64_t j = 0; j < columns; ++j) {
      c[j] = static_cast<Out>(alpha * sum[j] + static_cast<T>(bias[j]) + beta * static_cast<T>(c[j]));
    }
  }
}

/// A product's epilogue, applied to tiles of sums with the bias added. It rounds to T after each step, so it gives the
/// same bits as core/gemm_steps.h. It saves the extra passes over memory, so it is used where the result is large.
template <class T>
class Finish {
 public:
  Finish() = default;
  explicit Finish(const Product& product) : epilogue_(product.epilogue), c_(static_cast<const T*>(product.c.data)) {
    if (epilogue_ == nullptr || !epilogue_->activation) return;
    if (epilogue_->derivative) {
      derivative_ = unary_backward_row<T>(*epilogue_->activation);
    } else {
      activate_ = unary_row<T>(*epilogue_->activation);
    }
  }
  bool nothing() const { return epilogue_ == nullptr; }

  /// values [rows, columns], dense: a tile of sums with the bias, to be stored in c from `c` on, rows `stride` apart.
  /// Takes the whole tile at once: an activation of only a few elements would wait for the latency of its own
  /// arithmetic.
  template <std::size_t most>
  void tile(std::int64_t rows, std::int64_t columns, const T* c, std::int64_t stride,
            std::array<T, most>& values) const {
    const std::int64_t at = c - c_, count = rows * columns;
    T* const pre_activation = static_cast<T*>(epilogue_->pre_activation);
    if (derivative_ != nullptr) {
      std::array<T, most> before;
      for (std::int64_t i = 0; i < rows; ++i)
        std::copy_n(pre_activation + at + i * stride, columns, before.data() + i * columns);
      derivative_(count, before.data(), values.data(), values.data());
    }
    if (activate_ != nullptr) {
      for (std::int64_t i = 0; i < rows && pre_activation != nullptr; ++i)
        std::copy_n(values.data() + i * columns, columns, pre_activation + at + i * stride);
      activate_(count, values.data(), values.data());
    }
    if (epilogue_->residual == nullptr) return;
    using A = accumulate_t<T>;
    for (std::int64_t i = 0; i < rows; ++i) {
      const T* const residual = static_cast<const T*>(epilogue_->residual) + at + i * stride;
      T* const sum = values.data() + i * columns;
      for (std::int64_t j = 0; j < columns; ++j)
        sum[j] = static_cast<T>(static_cast<A>(sum[j]) + static_cast<A>(residual[j]));
    }
  }

 private:
  const Epilogue* epilogue_ = nullptr;
  const T* c_ = nullptr;
  UnaryRow<T> activate_ = nullptr;
  UnaryBackwardRow<T> derivative_ = nullptr;
};

/// Calls f(TypeTag<In>{}, TypeTag<Out>{}) with the dtypes of a product: c has a's dtype, or that of the sums.
template <class F>
void visit_product(const Product& product, F&& f) {
  visit_floating(product.a.dtype, "gemm", [&](auto in) {
    using In = typename decltype(in)::type;
    if (product.c.dtype == product.a.dtype) {
      f(in, in);
    } else {
      f(in, TypeTag<accumulate_t<In>>{});
    }
  });
}

}  // namespace trireme::cpu
