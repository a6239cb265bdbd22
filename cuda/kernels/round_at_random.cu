// The kernel of rounding at random; contract and bytes: cuda/kernels/round_at_random.h. A thread rounds four elements,
// which share a Philox block unless a row of the shard begins elsewhere.
#include "cuda/kernels/round_at_random.h"

#include <array>

#include "core/half.h"
#include "core/random.h"
#include "cuda/kernels/pieces.h"

namespace trireme::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWords = 4;  // of a Philox block

__global__ void __launch_bounds__(kThreads)
    round_at_random_kernel(const float* x, bf16* y, std::uint64_t seed, std::uint64_t stream_id,
                           const __grid_constant__ DropoutPlace place) {
  const MyPiece mine = my_piece<kWords>(place.view.count);
  if (mine.count == 0) return;
  const auto piece = load_piece<kWords>(x + mine.first, mine.count);
  Pack<bf16, kWords> rounded = {};
  std::uint64_t block = ~std::uint64_t{0};  // none yet: real blocks are below 2^61
  std::array<std::uint32_t, kWords> words = {};
  for (int i = 0; i < mine.count; ++i) {
    const auto element = static_cast<std::uint64_t>(place.start + offsets(place.view, mine.first + i).of[0]);
    if (element / kWords != block) {
      block = element / kWords;
      words = philox(seed, stream_id, block);
    }
    const auto in_block = static_cast<unsigned>(element % kWords);
    const std::uint32_t word =
        in_block < 2 ? (in_block == 0 ? words[0] : words[1]) : (in_block == 2 ? words[2] : words[3]);
    TRIREME_UNROLL
    for (int j = 0; j < kWords; ++j)  // by a constant index, so that the piece stays in registers
      if (j == i) rounded.values[j].bits = stochastic_bf16(piece.values[j], word);
  }
  store_piece(y + mine.first, rounded, mine.count);
}

}  // namespace

void round_at_random(const float* x, bf16* y, std::uint64_t seed, std::uint64_t stream_id, const DropoutPlace& place,
                     Stream stream) {
  if (place.view.count == 0) return;
  launch({"round_at_random", grid_of_pieces(place.view.count, kThreads, kWords), {kThreads, 1, 1}, 0, stream},
         round_at_random_kernel, x, y, seed, stream_id, place);
}

}  // namespace trireme::cuda
