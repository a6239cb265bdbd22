// Level 3: a block first copies the parts of a and b that it needs into shared memory, 32 x 32 at a time.
//
// Each value is then loaded once per block, not once per warp that misses it in L1: 16 FLOPs for each byte from L2,
// whatever the caches do, and L2's latency is paid once per tile. The inner loop has as many loads as before, now from
// shared memory, and they remain the limit. Two barriers per step: the tile must be complete before it is read, and
// read by all threads before it is overwritten.
// Read next: examples/cuda_lab/gemm/4_register_tiles.cu.
#include "examples/cuda_lab/gemm/ladder.h"

namespace trireme::cuda::lab::gemm {

namespace {

constexpr int kTile = 32;

__global__ void __launch_bounds__(kTile* kTile) shared_tiles_kernel(const __grid_constant__ Problem p) {
  TRIREME_SHARED(bf16, a_tile, kTile * kTile);  // [row, k]
  TRIREME_SHARED(bf16, b_tile, kTile * kTile);  // [k, column]
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const int row = static_cast<int>(blockIdx.y) * kTile + y, column = static_cast<int>(blockIdx.x) * kTile + x;
  const bf16 zero = from_float<bf16>(0.0F);
  float sum = 0;
  for (int start = 0; start < p.k; start += kTile) {
    const bool a_inside = row < p.m && start + x < p.k, b_inside = start + y < p.k && column < p.n;
    a_tile[y * kTile + x] = a_inside ? p.a[std::int64_t{row} * p.k + start + x] : zero;
    b_tile[y * kTile + x] = b_inside ? p.b[std::int64_t{start + y} * p.n + column] : zero;
    sync_threads();
    for (int k = 0; k < kTile; ++k) sum += to_float(a_tile[y * kTile + k]) * to_float(b_tile[k * kTile + x]);
    sync_threads();
  }
  if (row < p.m && column < p.n) p.c[std::int64_t{row} * p.n + column] = sum;
}

}  // namespace

void shared_tiles(const Problem& p, Stream stream) {
  const Dim3 grid = {static_cast<unsigned>(p.n + kTile - 1) / kTile, static_cast<unsigned>(p.m + kTile - 1) / kTile, 1};
  launch({"lab shared_tiles", grid, {kTile, kTile, 1}, 0, stream}, &shared_tiles_kernel, p);
}

}  // namespace trireme::cuda::lab::gemm
