// Level 1: three kernels for each tensor: velocity, weight, low copy. One element per thread.
//
// Each line of the formula is a kernel. The velocity is written by the first and read by the second. The weight is read
// by the first, read and written by the second, and read by the third: 16 + 12 + 6 = 34 bytes per element, where 22 are
// needed. And there are 444 launches for 148 tensors.
// Read next: examples/cuda_lab/sgd/2_fused.cu.
#include "cuda/kernels/pieces.h"
#include "examples/cuda_lab/sgd/ladder.h"

namespace trireme::cuda::lab::sgd {

namespace {

using Tensor = SgdTensor<bf16>;

__global__ void __launch_bounds__(kThreads) velocity_kernel(const __grid_constant__ Tensor t, SgdSettings s) {
  const MyPiece mine = my_piece<1>(t.count);
  const std::int64_t i = mine.first;
  if (mine.count > 0) t.velocity[i] = s.momentum * t.velocity[i] + (s.scale * t.gradient[i] + t.decay * t.weight[i]);
}

__global__ void __launch_bounds__(kThreads) weight_kernel(const __grid_constant__ Tensor t, SgdSettings s) {
  const MyPiece mine = my_piece<1>(t.count);
  if (mine.count > 0) t.weight[mine.first] -= s.lr * t.velocity[mine.first];
}

__global__ void __launch_bounds__(kThreads) round_kernel(const __grid_constant__ Tensor t) {
  const MyPiece mine = my_piece<1>(t.count);
  if (mine.count > 0) t.low[mine.first] = from_float<bf16>(t.weight[mine.first]);
}

}  // namespace

void unfused(const Problem& p, Stream stream) {
  for (const Tensor& t : p.tensors) {
    const Dim3 grid = grid_of_pieces(t.count, kThreads, 1), threads = {kThreads, 1, 1};
    launch({"lab velocity", grid, threads, 0, stream}, &velocity_kernel, t, p.settings);
    launch({"lab weight", grid, threads, 0, stream}, &weight_kernel, t, p.settings);
    launch({"lab round", grid, threads, 0, stream}, &round_kernel, t);
  }
}

}  // namespace trireme::cuda::lab::sgd
