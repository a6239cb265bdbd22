// Level 2: a block copies a row.
//
// However the rows are shuffled, each is 1536 bytes in one piece: neighbouring threads take neighbouring columns, and a
// load of a warp is two whole sectors. All threads of the block read the same index, one wavefront a warp.
//
// What is left is waiting: first for the index, without which the row is unknown; then for the row, three times,
// because a thread loads 2 bytes at a time and stores them before the next load.
// Read next: cuda/kernels/embedding.cu, the kernel in use, and examples/cuda_lab/gather/3_shipped.cpp on what it adds.
#include "examples/cuda_lab/gather/ladder.h"

namespace trireme::cuda::lab::gather {

namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) block_per_row_kernel(const __grid_constant__ Problem p) {
  const std::int64_t pick = blockIdx.x, row = p.index[pick];
  for (int c = static_cast<int>(threadIdx.x); c < p.width; c += kThreads)
    p.y[pick * p.width + c] = row >= 0 ? p.x[row * p.width + c] : from_float<bf16>(0);
}

}  // namespace

void block_per_row(const Problem& p, Stream stream) {
  launch({"lab gather block_per_row", {static_cast<unsigned>(p.picks), 1, 1}, {kThreads, 1, 1}, 0, stream},
         &block_per_row_kernel, p);
}

}  // namespace trireme::cuda::lab::gather
