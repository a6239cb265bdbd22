// Level 2: tiles of 32 x 32 go through shared memory.
//
// A warp reads a row of the tile from x, and writes a row of the tile's transpose to y: 64 bytes, two whole sectors, on
// both sides. The transposition happens in shared memory, which has no sectors. But it has 32 banks of four bytes each,
// and a warp that reads down a column of this tile touches addresses 64 bytes apart, which all lie in two banks:
// sixteen wavefronts for that load. And a bounds check precedes each of a thread's four loads, so nvcc does not overlap
// them: four waits.
// Read next: cuda/kernels/copy.cu, the kernel in use, and examples/cuda_lab/transpose/3_shipped.cpp on what it adds.
#include "examples/cuda_lab/transpose/ladder.h"

namespace trireme::cuda::lab::transpose {

namespace {

constexpr int kTile = 32, kTileRows = 8;

__global__ void __launch_bounds__(kTile* kTileRows) tiles_kernel(const __grid_constant__ Problem p) {
  TRIREME_SHARED(bf16, tile, kTile * kTile);  // [row, column]
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const int row0 = static_cast<int>(blockIdx.y) * kTile, column0 = static_cast<int>(blockIdx.x) * kTile;
  for (int r = y; r < kTile; r += kTileRows)
    if (row0 + r < p.rows && column0 + x < p.columns)
      tile[r * kTile + x] = p.x[std::int64_t{row0 + r} * p.columns + column0 + x];
  sync_threads();
  for (int c = y; c < kTile; c += kTileRows)
    if (column0 + c < p.columns && row0 + x < p.rows)
      p.y[std::int64_t{column0 + c} * p.rows + row0 + x] = tile[x * kTile + c];
}

}  // namespace

void tiles(const Problem& p, Stream stream) {
  const Dim3 grid = {static_cast<unsigned>(p.columns + kTile - 1) / kTile,
                     static_cast<unsigned>(p.rows + kTile - 1) / kTile, 1};
  launch({"lab tiles", grid, {kTile, kTileRows, 1}, 0, stream}, &tiles_kernel, p);
}

}  // namespace trireme::cuda::lab::transpose
