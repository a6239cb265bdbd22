// Level 1: one thread computes one element of c.
//
// The thread index that changes fastest runs down the rows. So the 32 threads of a warp read 32 different rows of a: 32
// cache lines for one load, of which each thread uses two bytes. L1 serves one line per clock: 33 clocks for 32
// multiplications, which the FMA units would do in a quarter of one.
// Read next: examples/cuda_lab/gemm/2_coalesced.cu.
#include "examples/cuda_lab/gemm/ladder.h"

namespace trireme::cuda::lab::gemm {

namespace {

__global__ void naive_kernel(const __grid_constant__ Problem p) {
  const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int column = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
  if (row >= p.m || column >= p.n) return;
  float sum = 0;
  for (int k = 0; k < p.k; ++k)
    sum += to_float(p.a[std::int64_t{row} * p.k + k]) * to_float(p.b[std::int64_t{k} * p.n + column]);
  p.c[std::int64_t{row} * p.n + column] = sum;
}

}  // namespace

void naive(const Problem& p, Stream stream) {
  const Dim3 block = {32, 8, 1};
  const Dim3 grid = {static_cast<unsigned>(p.m + 31) / 32, static_cast<unsigned>(p.n + 7) / 8, 1};
  launch({"lab naive", grid, block, 0, stream}, &naive_kernel, p);
}

}  // namespace trireme::cuda::lab::gemm
