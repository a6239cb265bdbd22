// Context of the tensors on a GPU in docs/cuda.md: see snippets_test.py.
#include "core/kernels.h"
#include "cuda/runtime/open.h"

using namespace trireme;

void norm(const Tensor& x, const Tensor& gamma, Tensor& y, Tensor& rstd) {
  // SNIPPET
}
