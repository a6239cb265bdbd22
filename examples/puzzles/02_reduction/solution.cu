// Puzzle 2: a solution.
#include <bit>
#include <numeric>

#include "examples/puzzles/02_reduction/puzzle.h"

namespace trireme::puzzles::reduction {
namespace {

int barriers(int threads) { return std::bit_width(static_cast<unsigned>(threads)) - 1; }

// Lanes that are 32 words apart share a bank. With an odd stride no two do; with stride 2 lanes 0 and 16 do.
int wavefronts(int stride) { return std::gcd(stride, 32); }

// In each step the first half of the sums takes the second half. The threads that add are neighbours, so warps are busy
// as a whole or not at all, and their lanes read neighbouring words. The order depends on n alone.
__global__ void sum(const float* x, float* out, int n) {
  TRIREME_SHARED(float, slab, kThreads);
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(gridDim.x) * kThreads;
  float own = 0;
  for (int i = static_cast<int>(blockIdx.x) * kThreads + thread; i < n; i += threads) own += x[i];
  slab[thread] = own;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    sync_threads();
    if (thread < half) slab[thread] += slab[thread + half];
  }
  if (thread == 0) out[blockIdx.x] = slab[0];
}

const Registered registered(answer("solution", {sum, barriers, wavefronts}));

}  // namespace
}  // namespace trireme::puzzles::reduction
