// Level 1: a thread copies a row.
//
// Its only advantage is that the index is read once and kept in a register. The lanes of a warp read from 32 rows and
// write to 32 others, so every load and every store is 32 lines of memory: 64 wavefronts for 128 bytes.
// Read next: examples/cuda_lab/gather/2_block_per_row.cu.
#include "examples/cuda_lab/gather/ladder.h"

namespace trireme::cuda::lab::gather {

namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads) thread_per_row_kernel(const __grid_constant__ Problem p) {
  const std::int64_t pick = std::int64_t{blockIdx.x} * kThreads + static_cast<int>(threadIdx.x);
  if (pick >= p.picks) return;
  const std::int64_t row = p.index[pick];
  for (int c = 0; c < p.width; ++c) p.y[pick * p.width + c] = row >= 0 ? p.x[row * p.width + c] : from_float<bf16>(0);
}

}  // namespace

void thread_per_row(const Problem& p, Stream stream) {
  const Dim3 grid = {static_cast<unsigned>(p.picks + kThreads - 1) / kThreads, 1, 1};
  launch({"lab gather thread_per_row", grid, {kThreads, 1, 1}, 0, stream}, &thread_per_row_kernel, p);
}

}  // namespace trireme::cuda::lab::gather
