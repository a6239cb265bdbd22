// A product's epilogue, which follows the sum and the bias (GemmOptions), as separate kernels. It defines the results
// of the fused form. It runs where a product has no fused form or gains nothing from it: Eigen and libraries, few rows,
// products of batches, results that stay in the caches, f32 on CUDA. It also gives sums of a's rows, which only
// gemm_sm90 computes itself.
// Read next: core/cpu/gemm_write.h, the fused form on the CPU; cuda/kernels/gemm_epilogue.h, on CUDA.
#pragma once

#include "core/kernels.h"

namespace trireme {

inline bool has_epilogue(const GemmOptions& options) {
  return options.activation || options.derivative || options.pre_activation.defined() || options.residual.defined();
}

/// Throws if the options contradict each other, or if c, pre_activation and residual are not dense, of one shape and of
/// a's dtype.
void check_epilogue(const Tensor& a, const Tensor& c, const GemmOptions& options);

/// Throws if options.row_sums is defined and not what core/kernels.h asks for.
void check_row_sums(const Tensor& a, const GemmOptions& options);

/// Computes options.row_sums by table.reduce, where a product does not give them itself. Returns the options without.
GemmOptions row_sums_apart(const KernelTable& table, const Tensor& a, const GemmOptions& options);

/// table.gemm without the epilogue, then the epilogue.
void gemm_in_steps(const KernelTable& table, const Tensor& a, const Tensor& b, Tensor& c, const GemmOptions& options);

}  // namespace trireme
