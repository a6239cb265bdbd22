// Puzzle 3: a solution.
#include <numeric>

#include "examples/puzzles/03_transpose/puzzle.h"

namespace trireme::puzzles::transposition {
namespace {

int wavefronts(int pitch) { return std::gcd(pitch, 32); }

// A warp reads 32 neighbours in four sectors, and writes 32 elements that lie in 32 sectors.
long sectors(int rows, int columns) { return long{rows} * columns / 32 * (4 + 32); }

// Rows of 33 floats: a step down a column is a step of one bank.
constexpr int kPitch = kTile + 1;

__global__ void transpose(const float* x, float* y, int rows, int columns) {
  TRIREME_SHARED(float, tile, kTile* kPitch);
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const int first_row = kTile * static_cast<int>(blockIdx.y), first_column = kTile * static_cast<int>(blockIdx.x);
  for (int i = warp; i < kTile; i += kRowsOfThreads) {
    const int row = first_row + i, column = first_column + lane;
    if (row < rows && column < columns) tile[i * kPitch + lane] = x[row * columns + column];
  }
  sync_threads();
  // The lanes are now the rows of x, which are neighbours in y.
  for (int i = warp; i < kTile; i += kRowsOfThreads) {
    const int row = first_row + lane, column = first_column + i;
    if (row < rows && column < columns) y[column * rows + row] = tile[lane * kPitch + i];
  }
}

const Registered registered(answer("solution", {transpose, wavefronts, sectors}));

}  // namespace
}  // namespace trireme::puzzles::transposition
