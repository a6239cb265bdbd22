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
// Read next: examples/cuda_lab/gemm/ladder.h again, and docs/ladder.md.
#include <array>

#include "cuda/kernels/gemm.h"
#include "examples/cuda_lab/gemm/ladder.h"

namespace trireme::cuda::lab::gemm {

void shipped_sm80(const Problem& p, Stream stream) {
  gemm_sm80(Gemm<bf16, float>{Form::nn, p.m, p.n, p.k, p.a, p.k, p.b, p.n, p.c, p.n}, stream);
}
void shipped_sm90(const Problem& p, Stream stream) {
  gemm_sm90(Gemm<bf16, float>{Form::nn, p.m, p.n, p.k, p.a, p.k, p.b, p.n, p.c, p.n}, stream);
}

namespace {

constexpr std::array all = {
    Level<Problem>{"naive", "one thread per element", 275.7, &naive},
    Level<Problem>{"coalesced", "lanes along a row", 26.88, &coalesced},
    Level<Problem>{"shared_tiles", "tiles in shared memory", 15.35, &shared_tiles},
    Level<Problem>{"register_tiles", "8 x 8 elements per thread", 4.135, &register_tiles},
    Level<Problem>{"pipelined", "copies under the products", 4.177, &pipelined},
    Level<Problem>{"tensor_cores", "mma.sync and ldmatrix", 0.6134, &tensor_cores},
    Level<Problem>{"gemm_sm80", "ring of four stages, swizzle", 0.7056, &shipped_sm80},
    Level<Problem>{"gemm_sm90", "128 x 192 in turns, TMA, wgmma", 0.2126, &shipped_sm90},
};

}  // namespace

std::span<const Level<Problem>> levels() { return all; }

}  // namespace trireme::cuda::lab::gemm
