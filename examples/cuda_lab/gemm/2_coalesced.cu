// Level 2: neighbouring threads compute neighbouring columns.
//
// Only the roles of the two thread indices are exchanged. A warp now reads one value of a, the same for all (one
// wavefront, broadcast), and 32 neighbours of b (64 bytes, one wavefront): 2 clocks instead of 33.
// Read next: examples/cuda_lab/gemm/3_shared_tiles.cu.
#include "examples/cuda_lab/gemm/ladder.h"

namespace trireme::cuda::lab::gemm {

namespace {

__global__ void coalesced_kernel(const __grid_constant__ Problem p) {
  const int row = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
  const int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (row >= p.m || column >= p.n) return;
  float sum = 0;
  for (int k = 0; k < p.k; ++k)
    sum += to_float(p.a[std::int64_t{row} * p.k + k]) * to_float(p.b[std::int64_t{k} * p.n + column]);
  p.c[std::int64_t{row} * p.n + column] = sum;
}

}  // namespace

void coalesced(const Problem& p, Stream stream) {
  const Dim3 block = {32, 8, 1};
  const Dim3 grid = {static_cast<unsigned>(p.n + 31) / 32, static_cast<unsigned>(p.m + 7) / 8, 1};
  launch({"lab coalesced", grid, block, 0, stream}, &coalesced_kernel, p);
}

}  // namespace trireme::cuda::lab::gemm
