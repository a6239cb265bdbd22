// Level 5: the next tile is copied while the current one is multiplied.
//
// So far every step waited for its loads. cp.async copies a tile from global to shared memory without registers and
// without waiting: with two tiles in shared memory, the copy of step k + 1 overlaps with the products of step k. The
// limit stays the same, but a block comes nearer to it. cp.async cannot transpose, so a thread reads eight values of K
// for each of its rows of a, and uses them one by one.
// Read next: examples/cuda_lab/gemm/6_tensor_cores.cu.
#include "examples/cuda_lab/gemm/ladder.h"

namespace trireme::cuda::lab::gemm {

namespace {

constexpr int kTile = 128, kDepth = 16, kThreads = 256, kMine = 8;
using Eight = Pack<bf16, 8>;

/// One of the two buffers.
struct Stage {
  bf16* a;  ///< [row, k]
  bf16* b;  ///< [k, column]
};

/// Starts the copy of sixteen bytes, or of zeros where the matrix ends.
__device__ __forceinline__ void copy_piece(bf16* to, const bf16* from, int row, int column, int rows, int columns) {
  const bool inside = row < rows && column < columns;
  cp_async_16(to, inside ? from + std::int64_t{row} * columns + column : from, inside ? 16 : 0);
}

__device__ __forceinline__ void copy_stage(const Problem& p, const Stage& stage, int row, int column, int start) {
  const int thread = static_cast<int>(threadIdx.x);
  if (start < p.k) {
    copy_piece(stage.a + thread * 8, p.a, row + thread / 2, start + thread % 2 * 8, p.m, p.k);
    copy_piece(stage.b + thread * 8, p.b, start + thread / 16, column + thread % 16 * 8, p.k, p.n);
  }
  cp_async_commit();  // an empty group past the end keeps the count: one group a step
}

__device__ __forceinline__ void multiply(const Stage& stage, int my_row, int my_column, float (&sums)[kMine][kMine]) {
  for (int start = 0; start < kDepth; start += 8) {
    Eight x[kMine];
    TRIREME_UNROLL
    for (int i = 0; i < kMine; ++i) x[i] = load_vector<Eight>(stage.a + (my_row + i) * kDepth + start);
    TRIREME_UNROLL
    for (int k = 0; k < 8; ++k) {
      const Eight y = load_vector<Eight>(stage.b + (start + k) * kTile + my_column);
      TRIREME_UNROLL
      for (int i = 0; i < kMine; ++i) {
        TRIREME_UNROLL
        for (int j = 0; j < kMine; ++j) sums[i][j] += to_float(x[i].values[k]) * to_float(y.values[j]);
      }
    }
  }
}

__global__ void __launch_bounds__(kThreads) pipelined_kernel(const __grid_constant__ Problem p) {
  TRIREME_SHARED(bf16, a_tiles, 2 * kTile * kDepth);
  TRIREME_SHARED(bf16, b_tiles, 2 * kDepth * kTile);
  const int thread = static_cast<int>(threadIdx.x);
  const int row = static_cast<int>(blockIdx.y) * kTile, column = static_cast<int>(blockIdx.x) * kTile;
  const int my_row = thread / 16 * kMine, my_column = thread % 16 * kMine;
  const auto stage = [&](int step) {
    return Stage{a_tiles + step % 2 * kTile * kDepth, b_tiles + step % 2 * kTile * kDepth};
  };
  float sums[kMine][kMine] = {};

  const int steps = (p.k + kDepth - 1) / kDepth;
  copy_stage(p, stage(0), row, column, 0);
  for (int step = 0; step < steps; ++step) {
    copy_stage(p, stage(step + 1), row, column, (step + 1) * kDepth);
    cp_async_wait<1>();  // all but the newest group have arrived
    sync_threads();      // those of the other threads, too
    multiply(stage(step), my_row, my_column, sums);
    sync_threads();  // the next step copies into this stage
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

void pipelined(const Problem& p, Stream stream) {
  const Dim3 grid = {static_cast<unsigned>(p.n + kTile - 1) / kTile, static_cast<unsigned>(p.m + kTile - 1) / kTile, 1};
  launch({"lab pipelined", grid, {kThreads, 1, 1}, 0, stream}, &pipelined_kernel, p);
}

}  // namespace trireme::cuda::lab::gemm
