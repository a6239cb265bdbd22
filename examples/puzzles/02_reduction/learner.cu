// Puzzle 2: your answer. Fill in the gaps, marked GAP, and run
//   ./trireme puzzle 2
#include "examples/puzzles/02_reduction/puzzle.h"

namespace trireme::puzzles::reduction {
namespace {

// ---- predictions, with pencil and paper -------------------------------------------------------------------------------

/// Barriers of a sum over a block of `threads` threads, a power of 2: one after each thread has written its number to
/// shared memory, and one after each halving but the last.
int barriers(int threads) {
  return 0;  // GAP 1
}

/// Wavefronts that a warp needs to load slab[stride * lane], floats in shared memory; bank b holds words b, b + 32, ...
int wavefronts(int stride) {
  return 0;  // GAP 2
}

// ---- the kernel -------------------------------------------------------------------------------------------------------

/// out[blockIdx.x] = the sum of this block's elements of x [n].
__global__ void sum(const float* x, float* out, int n) {
  TRIREME_SHARED(float, slab, kThreads);
  const int thread = static_cast<int>(threadIdx.x);
  float own = 0;
  // GAP 3: own = the sum of this thread's elements, as in puzzle 1.

  slab[thread] = own;
  // GAP 4: halve the number of sums until slab[0] has that of the block. Between a write to shared memory and another
  // thread's read lies a sync_threads(), which all threads of the block must reach.

  if (thread == 0) out[blockIdx.x] = slab[0];
}

const Registered registered(answer("learner", {sum, barriers, wavefronts}));

}  // namespace
}  // namespace trireme::puzzles::reduction
