// Puzzle 5: your answer. Fill in the gaps, marked GAP, and run
//   ./trireme puzzle 5
#include "examples/puzzles/05_scan/puzzle.h"

namespace trireme::puzzles::scan {
namespace {

// ---- predictions, with pencil and paper -------------------------------------------------------------------------------

/// Rounds of a scan over `threads` threads, a power of 2.
int rounds(int threads) {
  return 0;  // GAP 1
}

/// Additions in all rounds, of all threads together.
int additions(int threads) {
  return 0;  // GAP 2
}

// ---- the kernel -------------------------------------------------------------------------------------------------------

/// y[r][c] = x[r][0] + ... + x[r][c], for row r = blockIdx.x. x, y [rows, columns]
__global__ void scan(const float* x, float* y, int columns) {
  TRIREME_SHARED(float, slab, kThreads);
  const int thread = static_cast<int>(threadIdx.x);
  const float* const row = x + static_cast<long>(blockIdx.x) * columns;  // [columns]
  float* const out = y + static_cast<long>(blockIdx.x) * columns;        // [columns]
  float before = 0;  // the sum of all columns before this part of the row
  for (int first = 0; first < columns; first += kThreads) {
    // GAP 3: the running sums of this part of the row, in shared memory. Which reads and writes need a barrier between?

    // GAP 4: to `out`, with `before` added; then the next part's `before`.
  }
}

const Registered registered(answer("learner", {scan, rounds, additions}));

}  // namespace
}  // namespace trireme::puzzles::scan
