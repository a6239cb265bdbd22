// Puzzle 11: your answer. Fill in the gaps, marked GAP, and run
//   ./trireme puzzle 11
#include "examples/puzzles/11_cp_async/puzzle.h"

namespace trireme::puzzles::pipeline {
namespace {

using namespace cuda;  // cp_async_16, cp_async_commit, cp_async_wait<N>, sync_threads

// ---- a prediction, with pencil and paper ------------------------------------------------------------------------------

/// Bytes that each multiprocessor must have in flight. A GB/s is a byte in a nanosecond.
double bytes_in_flight(double gb_per_second, double nanoseconds, int multiprocessors) {
  return 0;  // GAP 1
}

// ---- the kernel -------------------------------------------------------------------------------------------------------

/// Starts the copy of this thread's piece of the tile at (row, column) of x [rows, columns]: one cp_async_16. Pieces are
/// inside of x, or outside of it as a whole.
__device__ void copy_piece(float* tile, const float* x, int row, int column, int rows, int columns) {
  // GAP 2
}

/// c = a b. a [m, k], b [k, n], c [m, n]
__global__ void multiply(const float* a, const float* b, float* c, int m, int n, int k) {
  TRIREME_SHARED(float, tiles_a, 2 * kTile * kTile);  // two buffers [row][k]
  TRIREME_SHARED(float, tiles_b, 2 * kTile * kTile);  // two buffers [k][column]
  const int thread = static_cast<int>(threadIdx.x), x = thread % kTile, y = thread / kTile;
  const int row = static_cast<int>(blockIdx.y) * kTile, column = static_cast<int>(blockIdx.x) * kTile;
  float sums[2] = {};  // of the elements (y, x) and (y + 8, x) of the tile of c
  // GAP 3: for each step, the copy of the next step's tiles, and the products of this step's.

  for (int i = 0; i < 2; ++i)
    if (const int line = row + y + 8 * i; line < m && column + x < n) c[line * n + column + x] = sums[i];
}

const Registered registered(answer("learner", {multiply, bytes_in_flight}));

}  // namespace
}  // namespace trireme::puzzles::pipeline
