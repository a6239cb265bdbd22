// Runs a column-major product, and reads back what the library was given. Does not include our kernels' headers: under
// the C++ compiler these are the emulator's, which conflict with the toolkit's.
// Read next: cuda/libraries/cublaslt.cpp.
#pragma once

#include "cuda/libraries/lt_problem.h"

namespace trireme::cuda {

/// Queues the call on `stream`, a cudaStream_t: must be the device's own, because the workspace relies on its order.
void run_cublaslt(const LtCall& call, void* stream);

/// What run_cublaslt passes to the library, made and read back without a GPU. For tests of the sizes and names of
/// attributes, which the library otherwise checks only when it runs.
struct LtReadBack {
  LtMatrix a, b, c, d;  ///< alignment: 0; only the algorithm search gets it
  int batch = 0;
  bool transpose_a = false, transpose_b = false;
  unsigned epilogue = 0;  ///< a cublasLtEpilogue_t
  const void* bias = nullptr;
  const void* aux = nullptr;
  std::int64_t aux_ld = 0, aux_stride = 0;
};
LtReadBack cublaslt_read_back(const LtCall& call);

}  // namespace trireme::cuda
