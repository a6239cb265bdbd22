// The code around the snippet in docs/cuda.md with tensors on a GPU: see snippets_test.py.
#include "core/kernels.h"
#include "cuda/runtime/open.h"

using namespace trireme;

void norm(const Tensor& x, const Tensor& gamma, Tensor& y, Tensor& rstd) {
  // SNIPPET
}
