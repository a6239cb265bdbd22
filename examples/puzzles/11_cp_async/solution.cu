// Puzzle 11: a solution.
#include "examples/puzzles/11_cp_async/puzzle.h"

namespace trireme::puzzles::pipeline {
namespace {

using namespace cuda;

// Bandwidth times latency. A GB/s is a byte in a nanosecond.
double bytes_in_flight(double gb_per_second, double nanoseconds, int multiprocessors) {
  return gb_per_second * nanoseconds / multiprocessors;
}

/// This thread's piece of a tile [kTile, kTile] at (row, column) of x [rows, columns].
__device__ void copy_piece(float* tile, const float* x, int row, int column, int rows, int columns) {
  const int piece = static_cast<int>(threadIdx.x) % 64, line = piece / 4, at = piece % 4 * kPiece;
  const bool inside = row + line < rows && column + at < columns;
  cp_async_16(tile + line * kTile + at, inside ? x + (row + line) * columns + column + at : x, inside ? 16 : 0);
}

__global__ void multiply(const float* a, const float* b, float* c, int m, int n, int k) {
  TRIREME_SHARED(float, tiles_a, 2 * kTile * kTile);
  TRIREME_SHARED(float, tiles_b, 2 * kTile * kTile);
  const int thread = static_cast<int>(threadIdx.x), x = thread % kTile, y = thread / kTile;  // and y + 8
  const int row = static_cast<int>(blockIdx.y) * kTile, column = static_cast<int>(blockIdx.x) * kTile;
  const auto copy = [&](int step) {
    const int buffer = step % 2 * kTile * kTile;
    if (thread < 64)
      copy_piece(tiles_a + buffer, a, row, step * kTile, m, k);
    else
      copy_piece(tiles_b + buffer, b, step * kTile, column, k, n);
    cp_async_commit();
  };
  float sums[2] = {};
  copy(0);
  for (int step = 0; step < steps(k); ++step) {
    cp_async_wait<0>();  // this thread's pieces of the step are there
    sync_threads();      // all pieces are there, and nobody reads the other buffer
    if (step + 1 < steps(k)) copy(step + 1);
    const float* const tile_a = tiles_a + step % 2 * kTile * kTile;
    const float* const tile_b = tiles_b + step % 2 * kTile * kTile;
    for (int i = 0; i < kTile; ++i) {
      const float value = tile_b[i * kTile + x];
      sums[0] += tile_a[y * kTile + i] * value;
      sums[1] += tile_a[(y + 8) * kTile + i] * value;
    }
  }
  for (int i = 0; i < 2; ++i)
    if (const int line = row + y + 8 * i; line < m && column + x < n) c[line * n + column + x] = sums[i];
}

const Registered registered(answer("solution", {multiply, bytes_in_flight}));

}  // namespace
}  // namespace trireme::puzzles::pipeline
