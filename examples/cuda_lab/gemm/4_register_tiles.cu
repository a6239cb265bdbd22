// Level 4: a thread computes 8 x 8 elements, of a block's 128 x 128.
//
// Sixteen values from shared memory now serve 64 multiplications, instead of two for one: the arithmetic becomes the
// limit. Shared memory holds a's tile transposed, so that the eight values that a thread needs are one load of 16
// bytes. The larger tile also asks L2 for four times less per FLOP.
// Read next: examples/cuda_lab/gemm/5_pipelined.cu.
#include "examples/cuda_lab/gemm/ladder.h"

namespace trireme::cuda::lab::gemm {

namespace {

constexpr int kTile = 128, kDepth = 16, kThreads = 256, kMine = 8;
using Eight = Pack<bf16, 8>;

/// Eight neighbours of a row, or zeros outside.
__device__ __forceinline__ Eight load_piece(const bf16* from, int row, int column, int rows, int columns) {
  if (row < rows && column < columns) return load_vector<Eight>(from + std::int64_t{row} * columns + column);
  Eight zeros;
  TRIREME_UNROLL
  for (bf16& value : zeros.values) value = from_float<bf16>(0.0F);
  return zeros;
}

__global__ void __launch_bounds__(kThreads) register_tiles_kernel(const __grid_constant__ Problem p) {
  TRIREME_SHARED(bf16, a_tile, kDepth * kTile);  // [k, row]
  TRIREME_SHARED(bf16, b_tile, kDepth * kTile);  // [k, column]
  const int thread = static_cast<int>(threadIdx.x);
  const int row = static_cast<int>(blockIdx.y) * kTile, column = static_cast<int>(blockIdx.x) * kTile;
  const int my_row = thread / 16 * kMine, my_column = thread % 16 * kMine;
  float sums[kMine][kMine] = {};

  for (int start = 0; start < p.k; start += kDepth) {
    // 256 threads, 256 pieces of eight values in each tile.
    const Eight a = load_piece(p.a, row + thread / 2, start + thread % 2 * 8, p.m, p.k);
    TRIREME_UNROLL
    for (int i = 0; i < 8; ++i) a_tile[(thread % 2 * 8 + i) * kTile + thread / 2] = a.values[i];
    const Eight b = load_piece(p.b, start + thread / 16, column + thread % 16 * 8, p.k, p.n);
    store_vector(b_tile + thread / 16 * kTile + thread % 16 * 8, b);
    sync_threads();
    for (int k = 0; k < kDepth; ++k) {
      const Eight x = load_vector<Eight>(a_tile + k * kTile + my_row);
      const Eight y = load_vector<Eight>(b_tile + k * kTile + my_column);
      TRIREME_UNROLL
      for (int i = 0; i < kMine; ++i) {
        TRIREME_UNROLL
        for (int j = 0; j < kMine; ++j) sums[i][j] += to_float(x.values[i]) * to_float(y.values[j]);
      }
    }
    sync_threads();
  }
  for (int i = 0; i < kMine; ++i) {
    const int r = row + my_row + i, c = column + my_column;
    if (r >= p.m || c >= p.n) continue;
    TRIREME_UNROLL
    for (int j = 0; j < kMine; j += 4)
      store_vector(p.c + std::int64_t{r} * p.n + c + j,
                   Pack<float, 4>{{sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]}});
  }
}

}  // namespace

void register_tiles(const Problem& p, Stream stream) {
  const Dim3 grid = {static_cast<unsigned>(p.n + kTile - 1) / kTile, static_cast<unsigned>(p.m + kTile - 1) / kTile, 1};
  launch({"lab register_tiles", grid, {kThreads, 1, 1}, 0, stream}, &register_tiles_kernel, p);
}

}  // namespace trireme::cuda::lab::gemm
