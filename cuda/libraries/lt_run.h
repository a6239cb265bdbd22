// Carrying out a column-major product, and looking at what the library was told. Knows nothing of our kernels' headers,
// which under the C++ compiler are the emulator's and do not go together with the toolkit's.
// Read next: cuda/libraries/cublaslt.cpp.
#pragma once

#include "cuda/libraries/lt_problem.h"

namespace trireme::cuda {

/// Queues the call on `stream`, a cudaStream_t: the device's own, as the workspace follows that one's order.
void run_cublaslt(const LtCall& call, void* stream);

/// What run_cublaslt hands to the library, made and read back without a GPU. For tests of the sizes and names of
/// attributes, which the library checks only when it runs.
struct LtReadBack {
  LtMatrix a, b, c, d;  ///< alignment: 0, as it goes to the search for an algorithm
  int batch = 0;
  bool transpose_a = false, transpose_b = false;
  unsigned epilogue = 0;  ///< a cublasLtEpilogue_t
  const void* bias = nullptr;
  const void* aux = nullptr;
  std::int64_t aux_ld = 0, aux_stride = 0;
};
LtReadBack cublaslt_read_back(const LtCall& call);

}  // namespace trireme::cuda
