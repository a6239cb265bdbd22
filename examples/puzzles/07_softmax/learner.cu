// Puzzle 7: your answer. Fill in the gaps, marked GAP, and run
//   ./trireme puzzle 7
#include <cmath>

#include "examples/puzzles/07_softmax/puzzle.h"

namespace trireme::puzzles::softmax {
namespace {

using cuda::shuffle_xor;
using cuda::sync_threads;

// ---- predictions, with pencil and paper -------------------------------------------------------------------------------

/// The largest whole number whose exponential is finite in f32. The largest f32 is 3.4e38.
int largest_exponent() {
  return 0;  // GAP 1
}

/// The sum of exp(x - top) over two parts, where top is the larger of top_a and top_b.
double joined_sum(double top_a, double sum_a, double top_b, double sum_b) {
  return 0;  // GAP 2
}

// ---- the kernel -------------------------------------------------------------------------------------------------------

/// y[r][c] = exp(x[r][c]) / the sum of exp(x[r][i]) over i, for row r = blockIdx.x. x, y [rows, columns]
__global__ void softmax(const float* x, float* y, int columns) {
  TRIREME_SHARED(float, tops, kWarps);
  TRIREME_SHARED(float, sums, kWarps);
  const int thread = static_cast<int>(threadIdx.x);
  const float* const row = x + static_cast<long>(blockIdx.x) * columns;  // [columns]
  float* const out = y + static_cast<long>(blockIdx.x) * columns;        // [columns]
  float top = 0, sum = 0;
  // GAP 3: the largest number and the sum of this thread's elements, in one pass. What are they of no element?

  // GAP 4: of the warp: shuffle_xor(top, bits) is the `top` of lane `lane ^ bits`. All lanes of the warp must call it.

  // GAP 5: of the block, through `tops` and `sums`.

  for (int c = thread; c < columns; c += kThreads) out[c] = expf(row[c] - top) / sum;
}

const Registered registered(answer("learner", {softmax, largest_exponent, joined_sum}));

}  // namespace
}  // namespace trireme::puzzles::softmax
