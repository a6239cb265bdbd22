// NVIDIA's libraries beside our kernels: which of them this build has, and their headers. Each is optional; if one is
// missing, nothing of it is declared or linked.
// Read next: cuda/libraries/cublaslt.h, cudnn_attention.h.
#pragma once

#if defined(TRIREME_HAS_CUBLASLT)
#include "cuda/libraries/cublaslt.h"
#endif
#if defined(TRIREME_HAS_CUDNN)
#include "cuda/libraries/cudnn_attention.h"
#endif

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
