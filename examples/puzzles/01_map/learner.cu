// Puzzle 1: your answer. Fill in the gaps, marked GAP, and run
//   ./trireme puzzle 1
#include "examples/puzzles/01_map/puzzle.h"

namespace trireme::puzzles::mapping {
namespace {

// ---- a prediction, with pencil and paper ------------------------------------------------------------------------------

/// Sectors of 32 bytes that a warp touches in one load of x[stride * lane], of floats.
int sectors(int stride) {
  return 0;  // GAP 1
}

// ---- the kernel -------------------------------------------------------------------------------------------------------

/// c[i] = a[i] + b[i] for all i from 0 to n - 1. There are gridDim.x * blockDim.x threads, fewer or more than n.
__global__ void add(const float* a, const float* b, float* c, int n) {
  // GAP 2: which i does this thread begin with, and which ones follow?
}

const Registered registered(answer("learner", {add, sectors}));

}  // namespace
}  // namespace trireme::puzzles::mapping
