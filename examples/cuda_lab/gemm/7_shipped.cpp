// Levels 7 and 8: the kernels in use. From Ampere on, cuda/kernels/gemm_sm80.cu; over level 6 it has
//   four stages instead of two, and one barrier a step instead of two: three copies are under way while one is used;
//   a permutation of 16-byte chunks instead of padding: the same freedom from bank conflicts, and no bytes lost;
//   64 x 64 sums for each of four warps, instead of 64 x 32 for each of eight: two thirds of the ldmatrix;
//   an order of tiles that keeps the part of b in L2 that neighbouring blocks share;
//   an epilogue (bias, GELU, residual, accumulation) that goes through shared memory to write whole rows;
//   three forms, batches, any size and alignment.
// On Hopper, cuda/kernels/gemm_sm90.cu (cuda/kernels/gemm_tiles_sm90.h); over that it has
//   tiles of 128 x 192, which two groups of four warps take in turns: one multiplies while the other stores;
//   products that read shared memory by themselves, 64 x 192 at a time (wgmma): no fragments to load;
//   a warp group that only copies, whole tiles by one thread (TMA), and runs ahead into the next tile.
// This file also has the cost of each level.
// Read next: examples/cuda_lab/gemm/ladder.h again, and docs/ladder.md.
#include <algorithm>
#include <array>

#include "cuda/kernels/gemm.h"
#include "examples/cuda_lab/gemm/ladder.h"

namespace trireme::cuda::lab {

void shipped_sm80(const Product& p, Stream stream) {
  gemm_sm80(Gemm<bf16, float>{Form::nn, p.m, p.n, p.k, p.a, p.k, p.b, p.n, p.c, p.n}, stream);
}
void shipped_sm90(const Product& p, Stream stream) {
  gemm_sm90(Gemm<bf16, float>{Form::nn, p.m, p.n, p.k, p.a, p.k, p.b, p.n, p.c, p.n}, stream);
}

namespace {

// Per multiprocessor and clock. FMA: 128 units. Tensor cores: 989 TFLOP/s over 132 multiprocessors at 1.83 GHz. L2: not
// published for Hopper; what level 8 got in long sums on an H100 (bench/results/gpu_notes.md).
constexpr double kFmaFlops = 2 * 128, kTensorFlops = 4096, kL2Bytes = 49;
constexpr double kMultiprocessors = 132, kClock = 1.83e9;

constexpr double tile_flops(double m, double n, double k) { return 2 * m * n * k; }

constexpr std::array levels = {
    // A step of K = 1 of 8 warps. a: 32 lines and a broadcast; 32 rows' sectors serve 16 steps; b: 8 columns.
    Level{"naive", "one thread per element", &naive, {Unit::fma, tile_flops(32, 8, 1), 8 * 33, 32 * 2 + 32}},
    Level{"coalesced", "lanes along a row", &coalesced, {Unit::fma, tile_flops(8, 32, 1), 8 * 2, 8 * 2 + 64}},
    // A step of K = 32 of 32 warps: two loads for each multiplication.
    Level{"shared_tiles",
          "tiles in shared memory",
          &shared_tiles,
          {Unit::fma, tile_flops(32, 32, 32), 32 * 32 * 2, 2 * 32 * 32 * 2}},
    // K = 16, 8 warps, each 16 x 128. A load of a: two addresses of 16 bytes, one wavefront; of b: 256 bytes, two.
    Level{"register_tiles",
          "8 x 8 elements per thread",
          &register_tiles,
          {Unit::fma, tile_flops(128, 128, 16), 8 * 16 * 3, 2 * 128 * 16 * 2}},
    // The same loads of b; of a, eight for eight steps of K.
    Level{"pipelined",
          "copies under the products",
          &pipelined,
          {Unit::fma, tile_flops(128, 128, 16), 8 * 16 * 3, 2 * 128 * 16 * 2}},
    // K = 32, 8 warps: per 16 of K four and two ldmatrix.x4, of four wavefronts each.
    Level{"tensor_cores",
          "mma.sync and ldmatrix",
          &tensor_cores,
          {Unit::tensor_core, tile_flops(128, 128, 32), 8 * 2 * 6 * 4, 2 * 128 * 32 * 2}},
    // 4 warps: per 16 of K four and four.
    Level{"gemm_sm80",
          "ring of four stages, swizzle",
          &shipped_sm80,
          {Unit::tensor_core, tile_flops(128, 128, 32), 4 * 2 * 8 * 4, 2 * 128 * 32 * 2}},
    // K = 64, a group of 128 rows: per 16 of K two wgmma, which read 2 KB of a and 6 KB of b each, 64 wavefronts.
    Level{"gemm_sm90",
          "128 x 192 in turns, TMA, wgmma",
          &shipped_sm90,
          {Unit::tensor_core, tile_flops(128, 192, 64), 4 * 2 * 64, (128 + 192) * 64 * 2}},
};

}  // namespace

double Clocks::slowest() const { return std::max({arithmetic, wavefronts, l2}); }

const char* Clocks::bound() const {
  if (slowest() == arithmetic) return "arithmetic";
  return slowest() == wavefronts ? "loads from L1 or shared memory" : "bytes from L2";
}

Clocks clocks(const Cost& cost) {
  return {cost.flops / (cost.unit == Unit::fma ? kFmaFlops : kTensorFlops), cost.wavefronts, cost.l2_bytes / kL2Bytes};
}

double limit_tflops(const Cost& cost) { return cost.flops / clocks(cost).slowest() * kMultiprocessors * kClock / 1e12; }

std::span<const Level> gemm_levels() { return levels; }

}  // namespace trireme::cuda::lab
