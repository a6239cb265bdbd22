// Matrix products by Eigen: portable, always available, and a reference for measuring and testing our own product
// (gemm_packed.cpp). Read next: gemm_blocks.h, which cuts a product into blocks.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // false alarms in GCC 12's own AVX-512 header
#pragma GCC diagnostic ignored "-Wuninitialized"        // the same, under sanitizers
#endif
#define EIGEN_DONT_PARALLELIZE  // our own team splits the work
#include <Eigen/Core>

#include "core/cpu/gemm_blocks.h"

namespace trireme::cpu {
namespace {

template <class T>
using RowMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using ColumnMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::ColMajor>;
using Stride = Eigen::OuterStride<>;

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

struct EigenLibrary {
  template <class In>
  static constexpr bool takes = false;

  template <class T>
  static void multiply(const MatrixView& a, const MatrixView& b, const MatrixView& c, double alpha, double beta) {
    Eigen::Map<RowMajor<T>, 0, Stride> to(static_cast<T*>(c.data), c.rows, c.columns, Stride(c.row_stride));
    if (beta == 0) {
      to.setZero();
    } else if (beta != 1) {
      to *= static_cast<T>(beta);
    }
    with_map<T>(a, [&](const auto& left) {
      with_map<T>(b, [&](const auto& right) { to.noalias() += static_cast<T>(alpha) * left * right; });
    });
  }
};

}  // namespace

const ProductKernel eigen_product = BlockedProduct<EigenLibrary>::kernel();

}  // namespace trireme::cpu
