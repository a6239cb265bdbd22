// Our product by NVIDIA's cuBLASLt: another implementation of the same struct. Compiled and linked if the toolkit is
// present; never run by us, because there was no GPU.
//
// The first call with a shape asks the library for its best algorithm; later ones find it in a map. If the library
// splits K, partial sums stay in f32 and are added in a fixed order, as in our kernels.
// Read next: cuda/libraries/lt_translate.h (row-major to column-major), then cublaslt.cpp.
#pragma once

#include "core/error.h"
#include "cuda/libraries/lt_run.h"
#include "cuda/libraries/lt_translate.h"

namespace trireme::cuda {

/// As gemm_sm80, on the device's own stream, because the library's workspace relies on its order. Throws
/// ExitCode::usage for what cublaslt_cannot names.
template <class T, class Out>
void gemm_cublaslt(const Gemm<T, Out>& product, Stream stream = nullptr) {
  if (const std::string reason = cublaslt_cannot(product); !reason.empty())
    fail(ExitCode::usage, "gemm", "cuBLASLt cannot do a product [{}, {}] over {} with {}; choose another --gemm",
         product.m, product.n, product.k, reason);
  if (product.m > 0 && product.n > 0 && product.batch > 0) run_cublaslt(translate(product), stream);
}

}  // namespace trireme::cuda
