// Puzzle 4: your answer. Fill in the gaps, marked GAP, and run
//   ./trireme puzzle 4
#include "examples/puzzles/04_stencil/puzzle.h"

namespace trireme::puzzles::stencil {
namespace {

// ---- predictions, with pencil and paper -------------------------------------------------------------------------------

/// Elements of x that a block needs for `threads` outputs, each counted once.
int elements(int threads) {
  return 0;  // GAP 1
}

/// Sectors of 32 bytes that a warp touches in one load of x[first + lane]. x begins at a sector.
int sectors(int first) {
  return 0;  // GAP 2
}

// ---- the kernel -------------------------------------------------------------------------------------------------------

/// y[i] = the sum over k from -kRadius to kRadius of w[kRadius + k] * x[i + k], with zeros outside of x. x, y [n]
__global__ void convolve(const float* x, const float* w, float* y, int n) {
  const int first = static_cast<int>(blockIdx.x) * kThreads;  // of the block's outputs
  // GAP 3: an array in shared memory for all that the block reads of x. Fill it: also where x has no elements.

  // GAP 4: after a barrier, the sum of this thread's output, if there is one.
}

const Registered registered(answer("learner", {convolve, elements, sectors}));

}  // namespace
}  // namespace trireme::puzzles::stencil
