// NVIDIA's libraries beside our kernels: which of them this build has. Each is optional by itself; where one is missing,
// nothing of it is linked, and its functions must not be called:
//
//   if constexpr (has_cublaslt) table.push_back({"cublaslt", cublaslt_cannot<T, Out>, gemm_cublaslt<T, Out>});
//
// (in a template, so that the branch not taken is not instantiated).
// Read next: cuda/libraries/cublaslt.h, cudnn_attention.h.
#pragma once

namespace trireme::cuda {

#if defined(TRIREME_HAS_CUBLASLT)
inline constexpr bool has_cublaslt = true;
#else
inline constexpr bool has_cublaslt = false;
#endif

#if defined(TRIREME_HAS_CUDNN)
inline constexpr bool has_cudnn = true;
#else
inline constexpr bool has_cudnn = false;
#endif

}  // namespace trireme::cuda
