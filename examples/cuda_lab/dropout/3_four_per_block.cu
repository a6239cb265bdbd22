// Level 3: a thread takes four neighbours, for which one call of Philox makes all words.
//
// This takes a quarter of the arithmetic, and accesses have 8 bytes. It is simple because the thread's first element is
// a multiple of four: word j always belongs to value j.
// Read next: cuda/kernels/dropout.cu, the kernel in use, and examples/cuda_lab/dropout/4_shipped.cpp on what it adds.
#include "cuda/kernels/pieces.h"
#include "examples/cuda_lab/dropout/ladder.h"

namespace trireme::cuda::lab::dropout {

namespace {

__global__ void __launch_bounds__(kThreads)
    four_per_block_kernel(const __grid_constant__ Problem p, std::uint32_t threshold, float scale) {
  const MyPiece mine = my_piece<4>(p.count);
  if (mine.count == 0) return;
  auto piece = load_piece<4>(p.x + mine.first, mine.count);
  const auto words = philox(p.seed, p.stream, static_cast<std::uint64_t>(mine.first) / 4);
  TRIREME_UNROLL
  for (int j = 0; j < 4; ++j) {
    const bool keeps = words[static_cast<std::size_t>(j)] >> 8 >= threshold;
    piece.values[j] = from_float<bf16>(keeps ? to_float(piece.values[j]) * scale : 0.0F);
  }
  store_piece(p.y + mine.first, piece, mine.count);
}

}  // namespace

void four_per_block(const Problem& p, Stream stream) {
  launch({"lab four_per_block", grid_of_pieces(p.count, kThreads, 4), {kThreads, 1, 1}, 0, stream},
         &four_per_block_kernel, p, threshold_of(p), scale_of(p));
}

}  // namespace trireme::cuda::lab::dropout
