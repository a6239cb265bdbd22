// Puzzle 3: your answer. Fill in the gaps, marked GAP, and run
//   ./trireme puzzle 3
#include "examples/puzzles/03_transpose/puzzle.h"

namespace trireme::puzzles::transposition {
namespace {

// ---- predictions, with pencil and paper -------------------------------------------------------------------------------

/// Wavefronts of a warp whose lane l reads tile[l * pitch + 5], of floats in shared memory.
int wavefronts(int pitch) {
  return 0;  // GAP 1
}

/// Sectors that a transpose without shared memory reads and writes, if each warp reads 32 neighbours of a row. Rows and
/// columns are multiples of 32.
long sectors(int rows, int columns) {
  return 0;  // GAP 2
}

// ---- the kernel -------------------------------------------------------------------------------------------------------

/// y[c][r] = x[r][c]. x [rows, columns], y [columns, rows]
__global__ void transpose(const float* x, float* y, int rows, int columns) {
  TRIREME_SHARED(float, tile, kTile* kTile);  // one dim: element [r][c] is tile[r * kTile + c]
  const int lane = static_cast<int>(threadIdx.x);
  // GAP 3: the block's tile of x comes into shared memory. A warp (threadIdx.y) takes each eighth row of it.
  for (int row = static_cast<int>(threadIdx.y); row < kTile; row += kRowsOfThreads) {}

  // GAP 4: the tile goes to y, so that a warp's lanes write neighbours. Where in y is it? Which edges does it have there?
  for (int row = static_cast<int>(threadIdx.y); row < kTile; row += kRowsOfThreads) {}
}

const Registered registered(answer("learner", {transpose, wavefronts, sectors}));

}  // namespace
}  // namespace trireme::puzzles::transposition
