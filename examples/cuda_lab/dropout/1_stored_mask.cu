// Level 1: one kernel draws a number for each value, another compares, multiplies, and keeps the mask. One value per
// thread.
//
// This is how a framework does it: y = x * (rand(n) >= p) / (1 - p), with the mask saved for the backward pass. The
// numbers are written and read again, 8 bytes per value, while x and y take 4. The mask takes one byte now and one
// later, and memory until the backward pass: 12.6 MB for each dropout of each layer.
// Read next: examples/cuda_lab/dropout/2_recomputed.cu.
#include "cuda/kernels/pieces.h"
#include "examples/cuda_lab/dropout/ladder.h"

namespace trireme::cuda::lab::dropout {

namespace {

__global__ void __launch_bounds__(kThreads) draw_kernel(const __grid_constant__ Problem p) {
  const MyPiece mine = my_piece<1>(p.count);
  if (mine.count == 0) return;
  const auto element = static_cast<std::uint64_t>(mine.first), in_block = element % 4;
  const auto words = philox(p.seed, p.stream, element / 4);
  // By constant indices, so that the words stay in registers.
  const std::uint32_t word = in_block < 2 ? (in_block == 0 ? words[0] : words[1]) : in_block == 2 ? words[2] : words[3];
  p.numbers[mine.first] = static_cast<float>(word >> 8) * 0x1p-24F;
}

__global__ void __launch_bounds__(kThreads) mask_kernel(const __grid_constant__ Problem p, float scale) {
  const MyPiece mine = my_piece<1>(p.count);
  if (mine.count == 0) return;
  const bool keeps = static_cast<double>(p.numbers[mine.first]) >= p.p;
  p.mask[mine.first] = keeps ? 1 : 0;
  p.y[mine.first] = from_float<bf16>(keeps ? to_float(p.x[mine.first]) * scale : 0.0F);
}

}  // namespace

void stored_mask(const Problem& p, Stream stream) {
  const Dim3 grid = grid_of_pieces(p.count, kThreads, 1), threads = {kThreads, 1, 1};
  launch({"lab draw", grid, threads, 0, stream}, &draw_kernel, p);
  launch({"lab mask", grid, threads, 0, stream}, &mask_kernel, p, scale_of(p));
}

}  // namespace trireme::cuda::lab::dropout
