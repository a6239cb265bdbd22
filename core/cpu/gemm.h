// What the matrix products of this folder share: one product of two plain matrices, without Tensor and batch.
//
// gemm.cpp and gemm_grouped.cpp turn the kernel table's entries into these; gemm_packed.cpp and gemm_dots.cpp compute
// them, or third-party kernels do: gemm_eigen.cpp, gemm_libraries.cpp.
// Read next: core/cpu/gemm.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/dtype.h"
#include "core/kernels.h"

namespace trireme::cpu {

/// A matrix in memory; strides are in elements, 0 repeats.
struct MatrixView {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t rows = 0, columns = 0;
  std::int64_t row_stride = 0, column_stride = 1;

  void* at(std::int64_t row, std::int64_t column) const {
    return static_cast<std::byte*>(data) +
           (row * row_stride + column * column_stride) * static_cast<std::int64_t>(size_of(dtype));
  }
  MatrixView block(std::int64_t row, std::int64_t column, std::int64_t row_count, std::int64_t column_count) const {
    return {at(row, column), dtype, row_count, column_count, row_stride, column_stride};
  }
};

/// What follows the sum and the bias (GemmOptions); tensors laid out as c.
struct Epilogue {
  std::optional<Unary> activation;
  bool derivative = false;
  void* pre_activation = nullptr;
  const void* residual = nullptr;
};

/// c = alpha a b + beta c + bias, then the epilogue, if there is one. a [M, K], b [K, N], c [M, N] with column stride
/// 1; bias [N] or null.
struct Product {
  MatrixView a, b, c;
  double alpha = 1, beta = 0;
  const void* bias = nullptr;  ///< dtype of a
  const Epilogue* epilogue = nullptr;
  /// A weight's panels (core/packed_weights.h), kept from product to product; null: b is packed for this one.
  std::byte* packed_b = nullptr;
  bool packed_b_filled = false;  ///< otherwise this product fills them
};

/// One implementation of products. `team` threads take part; 1 if the caller is itself a member of a team.
struct ProductKernel {
  void (*multiply)(const Product& product, int team, std::byte* workspace);
  std::size_t (*workspace_bytes)(const Product& product, int team);  ///< what `workspace` must hold, 64-byte aligned
  std::size_t (*packed_b_bytes)(const Product& product) = nullptr;   ///< 0 or null: it cannot use kept panels
  bool (*takes_epilogue)(const Product& product) = nullptr;          ///< null: never
};

extern const ProductKernel packed_product;  ///< our own: gemm_packed.cpp
extern const ProductKernel dots_product;    ///< our own, for few rows: gemm_dots.cpp; only where suits_dots()
bool suits_dots(const Product& product);
extern const ProductKernel eigen_product;  ///< gemm_eigen.cpp
/// Optional libraries; the first of these calls finds out whether they are installed: gemm_libraries.cpp.
extern const ProductKernel openblas_product, onednn_product;
bool has_openblas();
bool has_onednn();
const ProductKernel& selected_product();  ///< by select_gemm()

}  // namespace trireme::cpu
