// The last step of a product: alpha, beta, bias and the conversion to C's dtype, one row of a tile at a time.
#pragma once

#include "core/cpu/gemm.h"

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

/// Calls f(TypeTag<In>{}, TypeTag<Out>{}) with the dtypes of a product: c has a's, or the one sums are kept in.
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
