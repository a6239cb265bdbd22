// Puzzle 8: your answer. Fill in the gaps, marked GAP, and run
//   ./trireme puzzle 8
#include "examples/puzzles/08_layer_norm/puzzle.h"

namespace trireme::puzzles::layer_norm {
namespace {

using cuda::shuffle_xor;

// ---- predictions, with pencil and paper -------------------------------------------------------------------------------

/// The smallest power of 2, m, with which m * m + 1 == m * m in f32.
int first_lost() {
  return 0;  // GAP 1
}

/// The sum of squared differences from the common mean, of two sets of numbers together.
double joined_squares(double count_a, double mean_a, double squares_a, double count_b, double mean_b,
                      double squares_b) {
  return 0;  // GAP 2
}

// ---- the kernel -------------------------------------------------------------------------------------------------------

/// y[r][c] = (x[r][c] - mean) / sqrt(variance + kEps) * gamma[c] + beta[c], with mean and variance of row r.
/// x, y [rows, columns]; gamma, beta [columns]
__global__ void layer_norm(const float* x, const float* gamma, const float* beta, float* y, int rows, int columns) {
  const int lane = static_cast<int>(threadIdx.x), row = static_cast<int>(blockIdx.x * kRows + threadIdx.y);
  if (row >= rows) return;
  const float* const from = x + static_cast<long>(row) * columns;  // [columns]
  float* const to = y + static_cast<long>(row) * columns;          // [columns]
  float count = 0, mean = 0, squares = 0;
  // GAP 3: of this lane's elements, in one pass. squares is the sum of squared differences from the mean so far.

  // GAP 4: of the row, by shuffles. A lane may have no element.

  const float scale = cuda::reciprocal_sqrt(squares / count + kEps);
  for (int c = lane; c < columns; c += 32) to[c] = (from[c] - mean) * scale * gamma[c] + beta[c];
}

const Registered registered(answer("learner", {layer_norm, first_lost, joined_squares}));

}  // namespace
}  // namespace trireme::puzzles::layer_norm
