// Level 5: a thread loads all of its sixteen values before it uses the first.
//
// Two loads of 16 bytes replace sixteen of 2 bytes, and both are under way together: one wait instead of four, and an
// eighth of the load instructions. Four independent sums replace one: an addition takes four clocks, so sixteen in a
// row would take 64. They are joined in a fixed order.
//
// What is left: GPT-2 has 148 tensors, most of them too small to fill the multiprocessors, and each costs a launch.
// Read next: cuda/kernels/reduce.cu, the kernel in use, and examples/cuda_lab/gradient_norm/6_shipped.cpp on what it
// adds.
#include "cuda/kernels/pieces.h"
#include "examples/cuda_lab/gradient_norm/ladder.h"

namespace trireme::cuda::lab::gradient_norm {

namespace {

constexpr int kThreads = 256, kPieces = 2, kWidth = 8;
static_assert(kThreads * kPieces * kWidth == kTile);

__global__ void __launch_bounds__(kThreads) vectors_kernel(const bf16* x, std::int64_t count, float* partials) {
  TRIREME_SHARED(float, scratch, 32);
  const Range tile = my_tile(count);
  Pack<bf16, kWidth> pieces[kPieces];
  TRIREME_UNROLL
  for (int k = 0; k < kPieces; ++k) {
    const std::int64_t at = tile.begin + kWidth * (k * kThreads + static_cast<int>(threadIdx.x));
    const int mine = at >= tile.end ? 0 : tile.end - at < kWidth ? static_cast<int>(tile.end - at) : kWidth;
    pieces[k] = load_piece<kWidth>(x + at, mine);
  }
  float sums[4] = {};
  TRIREME_UNROLL
  for (int i = 0; i < kPieces * kWidth; ++i) {
    const float value = to_float(pieces[i / kWidth].values[i % kWidth]);
    sums[i % 4] += value * value;
  }
  const float sum = reduce_block<Sum>((sums[0] + sums[1]) + (sums[2] + sums[3]), scratch);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

}  // namespace

void vectors(const Problem& p, Stream stream) { each_tensor("lab vectors", p, kThreads, &vectors_kernel, stream); }

}  // namespace trireme::cuda::lab::gradient_norm
