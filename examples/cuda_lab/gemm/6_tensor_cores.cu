// Level 6: the products go to the tensor cores, sixteen times the arithmetic.
//
// mma.sync multiplies 16 x 16 by 16 x 8 for a whole warp, from registers in which each lane holds its part of the
// matrices (a fragment); ldmatrix brings four 8 x 8 matrices from shared memory into that shape. A warp computes 64 x
// 32 of the block's 128 x 128. Rows in shared memory are 16 bytes longer than their values, so that the eight rows of
// an 8 x 8 matrix start in different banks; without that, every ldmatrix takes several turns.
//
// Loading their operands is the limit now. A warp's 64 x 32 x 16 products take 16 clocks of its share of the tensor
// cores; their operands take 24 clocks of shared memory, and the block's reads from L2 about as long. Larger tiles per
// warp would need more registers than there are. (Hopper solves this: its tensor cores read shared memory directly, for
// tiles of a group of four warps.)
// Read next: cuda/kernels/gemm_sm80.cu, the kernel in use, and examples/cuda_lab/gemm/7_shipped.cpp on what it adds.
#include "examples/cuda_lab/gemm/ladder.h"

namespace trireme::cuda::lab::gemm {

namespace {

constexpr int kTile = 128, kDepth = 32, kThreads = 256;
constexpr int kPitchA = kDepth + 8, kPitchB = kTile + 8;  // padded: 80 and 272 bytes
constexpr int kRows = 64 / 16, kColumns = 32 / 8;         // fragments of a warp's tile

struct Stage {
  bf16* a;  ///< [kTile, kPitchA]
  bf16* b;  ///< [kDepth, kPitchB]
};

__device__ __forceinline__ void copy_piece(bf16* to, const bf16* from, int row, int column, int rows, int columns) {
  const bool inside = row < rows && column < columns;
  cp_async_16(to, inside ? from + std::int64_t{row} * columns + column : from, inside ? 16 : 0);
}

__device__ __forceinline__ void copy_stage(const Problem& p, const Stage& stage, int row, int column, int start) {
  constexpr int kPiecesA = kDepth / 8, kPiecesB = kTile / 8;  // per row
  if (start < p.k) {
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kPiecesA; i += kThreads) {
      const int r = i / kPiecesA, c = i % kPiecesA * 8;
      copy_piece(stage.a + r * kPitchA + c, p.a, row + r, start + c, p.m, p.k);
    }
    for (int i = static_cast<int>(threadIdx.x); i < kDepth * kPiecesB; i += kThreads) {
      const int r = i / kPiecesB, c = i % kPiecesB * 8;
      copy_piece(stage.b + r * kPitchB + c, p.b, start + r, column + c, p.k, p.n);
    }
  }
  cp_async_commit();
}

__device__ __forceinline__ void multiply(const Stage& stage, int warp_row, int warp_column,
                                         float (&sums)[kRows][kColumns][4]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  TRIREME_UNROLL
  for (int k = 0; k < kDepth; k += 16) {
    std::uint32_t a[kRows][4], b[kColumns / 2][4];
    // A lane gives the address of one row of one of the four matrices.
    TRIREME_UNROLL
    for (int i = 0; i < kRows; ++i)
      ldmatrix_x4(a[i], stage.a + (warp_row + 16 * i + lane % 16) * kPitchA + k + lane / 16 * 8);
    TRIREME_UNROLL
    for (int j = 0; j < kColumns / 2; ++j)
      ldmatrix_x4_transposed(b[j], stage.b + (k + lane % 16) * kPitchB + warp_column + 16 * j + lane / 16 * 8);
    TRIREME_UNROLL
    for (int i = 0; i < kRows; ++i) {
      TRIREME_UNROLL
      for (int j = 0; j < kColumns; ++j) mma_m16n8k16<bf16>(sums[i][j], a[i], b[j / 2] + j % 2 * 2);
    }
  }
}

__global__ void __launch_bounds__(kThreads) tensor_cores_kernel(const __grid_constant__ Problem p) {
  TRIREME_SHARED(bf16, a_tiles, 2 * kTile * kPitchA);
  TRIREME_SHARED(bf16, b_tiles, 2 * kDepth * kPitchB);
  const int row = static_cast<int>(blockIdx.y) * kTile, column = static_cast<int>(blockIdx.x) * kTile;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int warp_row = warp / 4 * 64, warp_column = warp % 4 * 32;  // 2 x 4 warps
  const auto stage = [&](int step) {
    return Stage{a_tiles + step % 2 * kTile * kPitchA, b_tiles + step % 2 * kDepth * kPitchB};
  };
  float sums[kRows][kColumns][4] = {};

  const int steps = (p.k + kDepth - 1) / kDepth;
  copy_stage(p, stage(0), row, column, 0);
  for (int step = 0; step < steps; ++step) {
    copy_stage(p, stage(step + 1), row, column, (step + 1) * kDepth);
    cp_async_wait<1>();
    sync_threads();
    multiply(stage(step), warp_row, warp_column, sums);
    sync_threads();
  }
  // A lane of an accumulator fragment holds two neighbours in row lane / 4, and two in the row eight below.
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kColumns; ++j)
      for (int half = 0; half < 2; ++half) {
        const int r = row + warp_row + 16 * i + lane / 4 + 8 * half;
        const int c = column + warp_column + 8 * j + lane % 4 * 2;
        if (r < p.m && c < p.n)
          store_vector(p.c + std::int64_t{r} * p.n + c,
                       Pack<float, 2>{{sums[i][j][2 * half], sums[i][j][2 * half + 1]}});
      }
}

}  // namespace

void tensor_cores(const Problem& p, Stream stream) {
  const Dim3 grid = {static_cast<unsigned>(p.n + kTile - 1) / kTile, static_cast<unsigned>(p.m + kTile - 1) / kTile, 1};
  launch({"lab tensor_cores", grid, {kThreads, 1, 1}, 0, stream}, &tensor_cores_kernel, p);
}

}  // namespace trireme::cuda::lab::gemm
