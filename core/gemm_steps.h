// What follows a product's sum and bias (GemmOptions), as kernels of their own. It defines what the fused form means,
// and it is what runs where no product has one or gains by it: Eigen and libraries, few rows, products of batches,
// results that stay in the caches, f32 on CUDA.
// Read next: core/cpu/gemm_write.h, the fused form on the CPU; cuda/kernels/gemm_epilogue.h, on CUDA.
#pragma once

#include "core/kernels.h"

namespace trireme {

inline bool has_epilogue(const GemmOptions& options) {
  return options.activation || options.derivative || options.pre_activation.defined() || options.residual.defined();
}

/// Throws where the options contradict each other, or pre_activation and residual are not as c.
void check_epilogue(const Tensor& a, const Tensor& c, const GemmOptions& options);

/// table.gemm without what follows, and then that.
void gemm_in_steps(const KernelTable& table, const Tensor& a, const Tensor& b, Tensor& c, const GemmOptions& options);

}  // namespace trireme
