// Puzzle 4: a solution.
#include "examples/puzzles/04_stencil/puzzle.h"

namespace trireme::puzzles::stencil {
namespace {

constexpr int kSlab = kThreads + 2 * kRadius;

// The outputs' own places, and a halo on each side.
int elements(int threads) { return threads + 2 * kRadius; }

// 128 bytes that do not begin at a sector reach into a fifth one.
int sectors(int first) { return first % 8 == 0 ? 4 : 5; }

__global__ void convolve(const float* x, const float* w, float* y, int n) {
  TRIREME_SHARED(float, slab, kSlab);  // slab[j] is x[first - kRadius + j]
  const int thread = static_cast<int>(threadIdx.x), first = static_cast<int>(blockIdx.x) * kThreads;
  for (int j = thread; j < kSlab; j += kThreads) {
    const int i = first - kRadius + j;
    slab[j] = i >= 0 && i < n ? x[i] : 0.0F;
  }
  sync_threads();
  if (first + thread >= n) return;
  float sum = 0;
  for (int k = 0; k <= 2 * kRadius; ++k) sum += w[k] * slab[thread + k];
  y[first + thread] = sum;
}

const Registered registered(answer("solution", {convolve, elements, sectors}));

}  // namespace
}  // namespace trireme::puzzles::stencil
