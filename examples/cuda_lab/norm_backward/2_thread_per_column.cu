// Level 2: a thread adds a column, so that neighbours read neighbours.
//
// Every byte that arrives is used: 4 bytes per value instead of 64. And yet it is slower. There are 768 columns, so 768
// threads: three blocks, on 3 of 132 multiprocessors, and each thread reads all 16,384 rows, with four loads under way
// at best. Bytes are the limit only for a kernel that has enough of them under way.
// Read next: examples/cuda_lab/norm_backward/3_tiles.cu.
#include "examples/cuda_lab/norm_backward/ladder.h"

namespace trireme::cuda::lab::norm_backward {

namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) thread_per_column_kernel(const __grid_constant__ Problem p) {
  const int column = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (column >= p.width) return;
  Terms sum = {};
  for (int row = 0; row < p.rows; ++row) {
    const Terms terms = terms_of(p, row, column);
    sum.gamma += terms.gamma;
    sum.beta += terms.beta;
  }
  store(p, column, sum);
}

}  // namespace

void thread_per_column(const Problem& p, Stream stream) {
  rows(p, stream);
  const Dim3 grid = {static_cast<unsigned>(p.width + kThreads - 1) / kThreads, 1, 1};
  launch({"lab thread_per_column", grid, {kThreads, 1, 1}, 0, stream}, &thread_per_column_kernel, p);
}

}  // namespace trireme::cuda::lab::norm_backward
