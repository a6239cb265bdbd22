// Eigen's product with Eigen's own threads, as a peer for gemm_bench.
#pragma once

#include "core/tensor.h"

namespace trireme::bench {

/// Binds OpenMP's threads to the cores that the calling thread's team would use.
void keep_omp_to_own_cores();

/// c = a @ b, or c += a @ b when `add`; f32 matrices with one stride of 1.
void eigen_omp(const Tensor& a, const Tensor& b, Tensor& c, bool add);

}  // namespace trireme::bench
