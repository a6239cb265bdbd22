// Puzzle 6: your answer. Fill in the gaps, marked GAP, and run
//   ./trireme puzzle 6
#include "examples/puzzles/06_histogram/puzzle.h"

namespace trireme::puzzles::histogram {
namespace {

using cuda::sync_threads;

// ---- predictions, with pencil and paper -------------------------------------------------------------------------------

/// The most threads, a multiple of 32, whose private copies of `bins` floats fit into `bytes` of shared memory.
int threads_that_fit(int bins, int bytes) {
  return -1;  // GAP 1
}

/// Wavefronts of a warp whose lane l reads copies[l * threads + (c + step * l) % threads].
int wavefronts(int step) {
  return 0;  // GAP 2
}

// ---- the kernels ------------------------------------------------------------------------------------------------------

/// partial[blockIdx.x][b] = the sum of weight[i] over this block's i with bin[i] == b. partial [gridDim.x, kBins]
__global__ void histogram(const int* bin, const float* weight, float* partial, int n) {
  TRIREME_SHARED(float, copies, kBins* kThreads);  // each thread has kBins of them; which?
  const int thread = static_cast<int>(threadIdx.x);
  // GAP 3: the thread's own copy, at first 0; then the weights of its elements. Elements may have no bin.

  // GAP 4: the sums of each bin over all copies. What must be between this and GAP 3?
}

/// out[b] = the sum of partial[block][b] over the blocks, for b = threadIdx.x.
__global__ void join(const float* partial, float* out) {
  // GAP 5
}

const Registered registered(answer("learner", {histogram, join, threads_that_fit, wavefronts}));

}  // namespace
}  // namespace trireme::puzzles::histogram
