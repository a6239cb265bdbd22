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

/// B of a product that is not a matrix in memory, such as the patches of a convolution: element (k, j) is
/// data[rows[k] + columns[j]]. Packing copies runs of columns whose offsets follow each other, in whole vectors: so it
/// may read up to one vector past the elements that the offsets name.
struct GatheredMatrix {
  const void* data = nullptr;             ///< of the dtype of a
  const std::int64_t* rows = nullptr;     ///< [K], in elements
  const std::int64_t* columns = nullptr;  ///< [N], in elements
};

/// A of a product whose elements are kernels of a convolution: row i, step k = (o, j) is
/// data[o * output_stride + i * kernel + order[j]], j < order_count. So it is the transpose of a weight
/// [outputs, rows, kernel], of which it has the kernel positions `order`.
struct KernelMatrix {
  const void* data = nullptr;  ///< of the dtype of c
  std::int64_t output_stride = 0, kernel = 0;
  const std::int64_t* order = nullptr;
  std::int64_t order_count = 0;
  const void* end = nullptr;  ///< of the readable memory
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
  /// Takes the place of b, of which nothing is read then. Only packed_product can do this.
  const GatheredMatrix* gathered_b = nullptr;
  const KernelMatrix* kernel_a = nullptr;   ///< likewise, of a; a's extents count
  const std::int64_t* c_columns = nullptr;  ///< where c's columns are, in elements, rising; null: 0, 1, 2, ..
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

/// What select_gemm() has selected: gemm_choice.cpp, which is compiled once for all levels (level.h).
enum class GemmLibrary : std::uint8_t { trireme, eigen, openblas, onednn };
GemmLibrary selected_gemm_library();
const ProductKernel& selected_product();  ///< this level's

}  // namespace trireme::cpu
