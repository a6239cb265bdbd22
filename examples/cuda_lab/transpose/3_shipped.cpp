// Level 3: the kernel in use, copy of cuda/kernels/copy.cu, which takes any strides and dtypes and recognises a
// transpose. Compared with level 2 a row of its tile is one element longer, 66 bytes: down a column, each lane of a
// warp now has its own bank. The extra column is never written. The four waits remain.
// Read next: docs/ladder.md.
#include <array>

#include "cuda/kernels/copy.h"
#include "examples/cuda_lab/transpose/ladder.h"

namespace trireme::cuda::lab::transpose {

void shipped(const Problem& p, Stream stream) {
  const Shape y = {p.columns, p.rows}, x_strides = {1, p.columns}, y_strides = {p.rows, 1};
  copy(p.x, DType::bf16, p.y, DType::bf16, strided<2>(y, {x_strides, y_strides}), stream);
}

namespace {

constexpr std::array all = {
    Level<Problem>{"naive", "one element per thread", 0.765, &naive},
    Level<Problem>{"tiles", "through shared memory", 0.1399, &tiles},
    Level<Problem>{"copy", "rows of the tile end in other banks", 0.1973, &shipped},
};

}  // namespace

std::span<const Level<Problem>> levels() { return all; }

}  // namespace trireme::cuda::lab::transpose
