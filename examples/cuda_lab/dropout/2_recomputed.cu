// Level 2: one kernel, and nothing is stored: the random word of an element is a function of its position.
//
// A generator with a state would have to keep it between two values, in memory or in the order of the threads. Philox
// has no state: its word is a hash of (seed, stream, element). The backward pass computes the same mask from the same
// three, so no mask is stored: 4 bytes per value, a third of level 1. The mask does not depend on which rank computes
// it, so every mesh drops the same values.
//
// What is left: a call of Philox makes four words, and each thread discards three of them.
// Read next: examples/cuda_lab/dropout/3_four_per_block.cu.
#include "cuda/kernels/pieces.h"
#include "examples/cuda_lab/dropout/ladder.h"

namespace trireme::cuda::lab::dropout {

namespace {

__global__ void __launch_bounds__(kThreads)
    recomputed_kernel(const __grid_constant__ Problem p, std::uint32_t threshold, float scale) {
  const MyPiece mine = my_piece<1>(p.count);
  if (mine.count == 0) return;
  const auto element = static_cast<std::uint64_t>(mine.first), in_block = element % 4;
  const auto words = philox(p.seed, p.stream, element / 4);
  const std::uint32_t word = in_block < 2 ? (in_block == 0 ? words[0] : words[1]) : in_block == 2 ? words[2] : words[3];
  const bool keeps = word >> 8 >= threshold;
  p.y[mine.first] = from_float<bf16>(keeps ? to_float(p.x[mine.first]) * scale : 0.0F);
}

}  // namespace

void recomputed(const Problem& p, Stream stream) {
  launch({"lab recomputed", grid_of_pieces(p.count, kThreads, 1), {kThreads, 1, 1}, 0, stream}, &recomputed_kernel, p,
         threshold_of(p), scale_of(p));
}

}  // namespace trireme::cuda::lab::dropout
