// Level 3: the rows are cut into 264 parts, two for each multiprocessor, and their sums are added afterwards.
//
// Lanes run along the columns as before, but each adds 62 rows instead of 16,384, and all multiprocessors work. The
// parts' sums are 1.6 MB, beside 50 MB of h and dy. A second launch adds them in order. Atomic additions into dgamma
// would save this launch, but give different bits on every run.
//
// What is left: h and dy have just been read by the kernel of the rows, and are read once more. 12 bytes per value.
// Read next: cuda/kernels/norm.cu, the kernel in use, and examples/cuda_lab/norm_backward/4_shipped.cpp on what it
// adds.
#include "examples/cuda_lab/norm_backward/ladder.h"

namespace trireme::cuda::lab::norm_backward {

namespace {

constexpr int kThreads = 256;

/// Blocks [columns / kThreads, parts].
__global__ void __launch_bounds__(kThreads) tiles_kernel(const __grid_constant__ Problem p) {
  const int column = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (column >= p.width) return;
  const int parts = static_cast<int>(gridDim.y), each = (p.rows + parts - 1) / parts;
  const int begin = static_cast<int>(blockIdx.y) * each, end = begin + each < p.rows ? begin + each : p.rows;
  Terms sum = {};
  for (int row = begin; row < end; ++row) {
    const Terms terms = terms_of(p, row, column);
    sum.gamma += terms.gamma;
    sum.beta += terms.beta;
  }
  p.partials[std::int64_t{blockIdx.y} * p.width + column] = sum.gamma;
  p.partials[std::int64_t{blockIdx.y + gridDim.y} * p.width + column] = sum.beta;
}

__global__ void __launch_bounds__(kThreads) add_tiles_kernel(const __grid_constant__ Problem p, int parts) {
  const int column = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (column >= p.width) return;
  Terms sum = {};
  for (int part = 0; part < parts; ++part) {
    sum.gamma += p.partials[std::int64_t{part} * p.width + column];
    sum.beta += p.partials[std::int64_t{parts + part} * p.width + column];
  }
  store(p, column, sum);
}

}  // namespace

void tiles(const Problem& p, Stream stream) {
  rows(p, stream);
  const int parts = norm_backward_blocks(p.rows);
  const unsigned columns = static_cast<unsigned>(p.width + kThreads - 1) / kThreads;
  launch({"lab tiles", {columns, static_cast<unsigned>(parts), 1}, {kThreads, 1, 1}, 0, stream}, &tiles_kernel, p);
  launch({"lab add_tiles", {columns, 1, 1}, {kThreads, 1, 1}, 0, stream}, &add_tiles_kernel, p, parts);
}

}  // namespace trireme::cuda::lab::norm_backward
