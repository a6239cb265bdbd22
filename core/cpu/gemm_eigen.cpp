// Matrix products through Eigen: the peer that our own product (gemm_packed.cpp) is measured and tested against.
//
// Eigen's kernels may change the order of a sum with the place of an element in its tile, so C is cut into blocks
// whose size does not depend on the number of threads, and each block is one product on one thread. 16-bit operands
// are converted to float first, and so is C when its dtype is not the one sums are kept in.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // false alarms in GCC 12's own AVX-512 header
#pragma GCC diagnostic ignored "-Wuninitialized"        // the same, under sanitizers
#endif
#define EIGEN_DONT_PARALLELIZE  // the team is ours to split
#include <Eigen/Core>
#include <algorithm>
#include <type_traits>

#include "core/cpu/gemm.h"
#include "core/parallel_for.h"

namespace trireme::cpu {
namespace {

template <class T>
using RowMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using ColumnMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::ColMajor>;
using Stride = Eigen::OuterStride<>;

constexpr std::int64_t block_extent = 128;  // rows or columns of C in one block
constexpr std::int64_t most_blocks = 16;    // each block packs B anew: few, large blocks

DType accumulator(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

/// Eigen maps need one stride of 1 and the other at least the extent.
bool fits_eigen(const MatrixView& x) {
  return x.dtype == accumulator(x.dtype) &&
         ((x.column_stride == 1 && x.row_stride >= x.columns) || (x.row_stride == 1 && x.column_stride >= x.rows));
}

std::size_t dense_bytes(const MatrixView& x) {
  const auto bytes = static_cast<std::size_t>(x.rows * x.columns) * size_of(accumulator(x.dtype));
  return (bytes + 63) / 64 * 64;
}

/// A dense row-major copy of x in the accumulator's type, placed at `memory`.
template <class From, class T = accumulate_t<From>>
MatrixView dense_copy(const MatrixView& x, std::byte* memory) {
  auto* to = reinterpret_cast<T*>(memory);
  const auto* from = static_cast<const From*>(x.data);
  parallel_for(x.rows, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      for (std::int64_t j = 0; j < x.columns; ++j) {
        to[i * x.columns + j] = static_cast<T>(from[i * x.row_stride + j * x.column_stride]);
      }
    }
  });
  return {to, dtype_of<T>, x.rows, x.columns, x.columns, 1};
}

/// Calls f with x as an Eigen map in the storage order its strides ask for.
template <class T, class F>
void with_map(const MatrixView& x, F&& f) {
  const auto* data = static_cast<const T*>(x.data);
  if (x.column_stride == 1 && x.row_stride >= x.columns) {
    f(Eigen::Map<const RowMajor<T>, 0, Stride>(data, x.rows, x.columns, Stride(x.row_stride)));
  } else {
    f(Eigen::Map<const ColumnMajor<T>, 0, Stride>(data, x.rows, x.columns, Stride(x.column_stride)));
  }
}

template <class T>
void multiply_block(const MatrixView& a, const MatrixView& b, const MatrixView& c, double alpha, double beta) {
  Eigen::Map<RowMajor<T>, 0, Stride> to(static_cast<T*>(c.data), c.rows, c.columns, Stride(c.row_stride));
  if (beta == 0) {
    to.setZero();
  } else if (beta != 1) {
    to *= static_cast<T>(beta);
  }
  if (a.columns == 0) return;
  with_map<T>(a, [&](const auto& left) {
    with_map<T>(b, [&](const auto& right) { to.noalias() += static_cast<T>(alpha) * left * right; });
  });
}

/// c = alpha a b + beta c, block by block.
template <class T>
void multiply_dense(const MatrixView& a, const MatrixView& b, const MatrixView& c, double alpha, double beta) {
  const bool by_rows = c.rows >= c.columns;
  const std::int64_t extent = by_rows ? c.rows : c.columns;
  const std::int64_t blocks = std::clamp<std::int64_t>(extent / block_extent, 1, most_blocks);
  parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t first = extent * block / blocks, count = extent * (block + 1) / blocks - first;
      if (by_rows) {
        multiply_block<T>(a.block(first, 0, count, a.columns), b, c.block(first, 0, count, c.columns), alpha, beta);
      } else {
        multiply_block<T>(a, b.block(0, first, b.rows, count), c.block(0, first, c.rows, count), alpha, beta);
      }
    }
  });
}

/// c = value + beta c + bias, with conversion; beta is 0 or value already holds c's part when `from` is c itself.
template <class T, class C, class Bias>
void finish(const MatrixView& from, const Product& product) {
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

std::size_t workspace_bytes(const Product& product, int) {
  return (fits_eigen(product.a) ? 0 : dense_bytes(product.a)) + (fits_eigen(product.b) ? 0 : dense_bytes(product.b)) +
         (fits_eigen(product.c) ? 0 : dense_bytes(product.c));
}

template <class In>
void multiply_as(const Product& product, std::byte* workspace) {
  using T = accumulate_t<In>;
  const auto take = [&](const MatrixView& x) {
    std::byte* taken = workspace;
    workspace += dense_bytes(x);
    return taken;
  };
  const MatrixView a = fits_eigen(product.a) ? product.a : dense_copy<In>(product.a, take(product.a));
  const MatrixView b = fits_eigen(product.b) ? product.b : dense_copy<In>(product.b, take(product.b));
  if (fits_eigen(product.c)) {
    multiply_dense<T>(a, b, product.c, product.alpha, product.beta);
    if (product.bias != nullptr) finish<T, T, In>(product.c, product);
    return;
  }
  const MatrixView& c = product.c;
  const MatrixView sum{take(c), dtype_of<T>, c.rows, c.columns, c.columns, 1};
  multiply_dense<T>(a, b, sum, product.alpha, 0.0);
  if (c.dtype == dtype_of<T>) {
    finish<T, T, In>(sum, product);
  } else {
    finish<T, In, In>(sum, product);
  }
}

void multiply(const Product& product, int, std::byte* workspace) {
  visit_floating(product.a.dtype, "gemm",
                 [&](auto tag) { multiply_as<typename decltype(tag)::type>(product, workspace); });
}

}  // namespace

const ProductKernel eigen_product = {multiply, workspace_bytes};

}  // namespace trireme::cpu
