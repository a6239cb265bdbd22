// Level 1: one element per thread, along the rows of x.
//
// A warp reads 32 neighbours, 64 bytes, and writes them 32 KB apart: two bytes into each of 32 sectors. Memory is
// written in whole sectors. A sector's sixteen values come from sixteen rows of x; unless L2 collects them all before
// it evicts the sector, 32 bytes are written for each 2. Swapping the indices would make the writes good and the reads
// bad.
// Read next: examples/cuda_lab/transpose/2_tiles.cu.
#include "examples/cuda_lab/transpose/ladder.h"

namespace trireme::cuda::lab::transpose {

namespace {

constexpr int kTile = 32, kTileRows = 8;

__global__ void __launch_bounds__(kTile* kTileRows) naive_kernel(const __grid_constant__ Problem p) {
  const int column = static_cast<int>(blockIdx.x) * kTile + static_cast<int>(threadIdx.x);
  const int row = static_cast<int>(blockIdx.y) * kTileRows + static_cast<int>(threadIdx.y);
  if (row < p.rows && column < p.columns)
    p.y[std::int64_t{column} * p.rows + row] = p.x[std::int64_t{row} * p.columns + column];
}

}  // namespace

void naive(const Problem& p, Stream stream) {
  const Dim3 grid = {static_cast<unsigned>(p.columns + kTile - 1) / kTile,
                     static_cast<unsigned>(p.rows + kTileRows - 1) / kTileRows, 1};
  launch({"lab naive transpose", grid, {kTile, kTileRows, 1}, 0, stream}, &naive_kernel, p);
}

}  // namespace trireme::cuda::lab::transpose
