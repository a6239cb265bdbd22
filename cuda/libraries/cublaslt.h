// Our product by NVIDIA's cuBLASLt: the same struct, another implementation. Compiled and linked where the toolkit is,
// and never run by us: no GPU was there.
//
// The first call with a shape asks the library for its best algorithm; later ones find it in a map. Partial sums, where
// the library splits K, stay in f32 and are added in a fixed order, as in our kernels.
// Read next: cuda/libraries/lt_translate.h (row-major to column-major), then cublaslt.cpp.
#pragma once

#include "core/error.h"
#include "cuda/libraries/lt_run.h"
#include "cuda/libraries/lt_translate.h"

namespace trireme::cuda {

/// As gemm_sm80, on the device's own stream: the library's workspace follows that one's order. An Error of usage for
/// what cublaslt_cannot names.
template <class T, class Out>
void gemm_cublaslt(const Gemm<T, Out>& product, Stream stream = nullptr) {
  if (const std::string reason = cublaslt_cannot(product); !reason.empty())
    fail(ExitCode::usage, "gemm", "cuBLASLt cannot do a product [{}, {}] over {} with {}; choose another --gemm",
         product.m, product.n, product.k, reason);
  if (product.m > 0 && product.n > 0 && product.batch > 0) run_cublaslt(translate(product), stream);
}

}  // namespace trireme::cuda
