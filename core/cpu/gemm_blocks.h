// A product by a third-party kernel that computes on one thread: the common part of Eigen, OpenBLAS and oneDNN.
//
// In such kernels the order of a sum may depend on the element's place in its tile. So C is cut into blocks whose size
// does not depend on the number of threads, and each block is one product on one thread. Operands that the kernel
// cannot read in place are copied first, 16-bit ones as float. Sums that C cannot hold are kept in a separate buffer.
// Read next: gemm_eigen.cpp, gemm_libraries.cpp.
#pragma once

#include <algorithm>

#include "core/cpu/gemm.h"
#include "core/parallel_for.h"

namespace trireme::cpu {

/// Library has
///   static constexpr bool takes<In>       whether its kernel multiplies such 16-bit elements as they are
///   static void multiply<In>(a, b, c, alpha, beta)
///                                         c = alpha a b + beta c on the calling thread; beta = 0 ignores what c holds.
///                                         a and b of In have one stride of 1 and the other at least the extent; c, of
///                                         accumulate_t<In>, has column stride 1. No extent is 0.
template <class Library>
class BlockedProduct {
 public:
  static constexpr ProductKernel kernel() { return {multiply, workspace_bytes}; }

 private:
  static constexpr std::int64_t block_extent = 128;  // rows or columns of C in one block
  static constexpr std::int64_t most_blocks = 16;    // the kernel packs B anew for each: few, large blocks

  static std::size_t workspace_bytes(const Product& p, int) {
    return visit_floating(p.a.dtype, "gemm", [&](auto in) {
      using In = typename decltype(in)::type;
      const bool direct = Library::template takes<In> && is_dense(p.a) && is_dense(p.b);
      return (direct ? 0 : copy_bytes<In>(p.a) + copy_bytes<In>(p.b)) +
             (holds_sums<In>(p.c) ? 0 : dense_bytes<In>(p.c));
    });
  }

  static void multiply(const Product& p, int, std::byte* workspace) {
    visit_floating(p.a.dtype, "gemm", [&](auto in) {
      using In = typename decltype(in)::type;
      using Sum = accumulate_t<In>;
      if constexpr (Library::template takes<In>) {
        if (is_dense(p.a) && is_dense(p.b)) return multiply_into_c<In, In>(p, p.a, p.b, workspace);
      }
      std::byte* const memory_of_b = workspace + copy_bytes<In>(p.a);
      const MatrixView a = readable<In>(p.a, workspace), b = readable<In>(p.b, memory_of_b);
      multiply_into_c<Sum, In>(p, a, b, memory_of_b + copy_bytes<In>(p.b));
    });
  }

  /// In: dtype of a and b here; Given: their dtype before they were copied, and the bias's dtype.
  template <class In, class Given>
  static void multiply_into_c(const Product& p, const MatrixView& a, const MatrixView& b, std::byte* memory) {
    using Sum = accumulate_t<Given>;
    const MatrixView& c = p.c;
    if (holds_sums<Given>(c)) {
      multiply_blocks<In>(a, b, c, p.alpha, p.beta);
      if (p.bias != nullptr) finish<Sum, Sum, Given>(c, p);
      return;
    }
    const MatrixView sums{memory, dtype_of<Sum>, c.rows, c.columns, c.columns, 1};
    multiply_blocks<In>(a, b, sums, p.alpha, 0.0);
    c.dtype == dtype_of<Sum> ? finish<Sum, Sum, Given>(sums, p) : finish<Sum, Given, Given>(sums, p);
  }

  /// c = alpha a b + beta c.
  template <class In>
  static void multiply_blocks(const MatrixView& a, const MatrixView& b, const MatrixView& c, double alpha,
                              double beta) {
    const bool by_rows = c.rows >= c.columns;
    const std::int64_t extent = by_rows ? c.rows : c.columns;
    const std::int64_t blocks = std::clamp<std::int64_t>(extent / block_extent, 1, most_blocks);
    parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t block = begin; block < end; ++block) {
        const std::int64_t first = extent * block / blocks, count = extent * (block + 1) / blocks - first;
        const MatrixView rows = by_rows ? a.block(first, 0, count, a.columns) : a,
                         columns = by_rows ? b : b.block(0, first, b.rows, count),
                         part = by_rows ? c.block(first, 0, count, c.columns) : c.block(0, first, c.rows, count);
        if (a.columns > 0) {
          Library::template multiply<In>(rows, columns, part, alpha, beta);
        } else {
          scale<accumulate_t<In>>(part, beta);
        }
      }
    });
  }

  template <class T>
  static void scale(const MatrixView& c, double beta) {
    for (std::int64_t i = 0; i < c.rows; ++i) {
      auto* const row = static_cast<T*>(c.at(i, 0));
      for (std::int64_t j = 0; j < c.columns; ++j) row[j] = beta == 0 ? T{0} : static_cast<T>(beta) * row[j];
    }
  }

  /// c = from + beta c + bias, with conversion. When `from` is c itself, it includes beta c already.
  template <class T, class C, class Bias>
  static void finish(const MatrixView& from, const Product& product) {
    const auto* bias = static_cast<const Bias*>(product.bias);
    const MatrixView& c = product.c;
    const bool keep = from.data != c.data && product.beta != 0;
    parallel_for(c.rows, 64, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const auto* value = static_cast<const T*>(from.at(i, 0));
        auto* to = static_cast<C*>(c.at(i, 0));
        for (std::int64_t j = 0; j < c.columns; ++j) {
          T sum = value[j];
          if (keep) sum += static_cast<T>(product.beta) * static_cast<T>(to[j]);
          if (bias != nullptr) sum += static_cast<T>(bias[j]);
          to[j] = static_cast<C>(sum);
        }
      }
    });
  }

  /// Kernels need one stride of 1 and the other at least the extent.
  static bool is_dense(const MatrixView& x) {
    return (x.column_stride == 1 && x.row_stride >= x.columns) || (x.row_stride == 1 && x.column_stride >= x.rows);
  }
  template <class In>
  static bool holds_sums(const MatrixView& c) {
    return c.dtype == dtype_of<accumulate_t<In>> && c.column_stride == 1 && c.row_stride >= c.columns;
  }

  template <class In>
  static std::size_t dense_bytes(const MatrixView& x) {
    return (static_cast<std::size_t>(x.rows * x.columns) * sizeof(accumulate_t<In>) + 63) / 64 * 64;
  }
  template <class In>
  static std::size_t copy_bytes(const MatrixView& x) {
    return std::is_same_v<In, accumulate_t<In>> && is_dense(x) ? 0 : dense_bytes<In>(x);
  }

  /// x, or a dense row-major copy of it in the accumulator's type, placed at `memory`.
  template <class In>
  static MatrixView readable(const MatrixView& x, std::byte* memory) {
    using T = accumulate_t<In>;
    if (copy_bytes<In>(x) == 0) return x;
    auto* const to = reinterpret_cast<T*>(memory);
    const auto* const from = static_cast<const In*>(x.data);
    parallel_for(x.rows, 64, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        for (std::int64_t j = 0; j < x.columns; ++j)
          to[i * x.columns + j] = static_cast<T>(from[i * x.row_stride + j * x.column_stride]);
    });
    return {to, dtype_of<T>, x.rows, x.columns, x.columns, 1};
  }
};

}  // namespace trireme::cpu
