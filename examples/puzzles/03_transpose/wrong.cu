// Puzzle 3: wrong kernels, most of which give the right matrix, each with a part of the message that it must get. Do not
// read this before your own answer: what is wrong shows what is right.
#include <algorithm>
#include <numeric>

#include "examples/puzzles/03_transpose/puzzle.h"

namespace trireme::puzzles::transposition {
namespace {

using Kernel = void(const float*, float*, int, int);

Answer wrong(std::string name, Kernel* transpose, std::string expected) {
  return answer(std::move(name),
                {transpose, [](int pitch) { return std::gcd(pitch, 32); },
                 [](int rows, int columns) { return long{rows} * columns / 32 * 36; }},
                std::move(expected));
}

__device__ int lane() { return static_cast<int>(threadIdx.x); }
__device__ int warp() { return static_cast<int>(threadIdx.y); }
__device__ int first_row() { return kTile * static_cast<int>(blockIdx.y); }
__device__ int first_column() { return kTile * static_cast<int>(blockIdx.x); }

template <int kPitch>
__device__ void read_tile(const float* x, float* tile, int rows, int columns) {
  for (int i = warp(); i < kTile; i += kRowsOfThreads)
    if (first_row() + i < rows && first_column() + lane() < columns)
      tile[i * kPitch + lane()] = x[(first_row() + i) * columns + first_column() + lane()];
}
template <int kPitch>
__device__ void write_tile(float* y, const float* tile, int rows, int columns) {
  for (int i = warp(); i < kTile; i += kRowsOfThreads)
    if (first_row() + lane() < rows && first_column() + i < columns)
      y[(first_column() + i) * rows + first_row() + lane()] = tile[lane() * kPitch + i];
}

/// Rows of 32 floats: a column is in one bank.
template <int kPitch>
__global__ void pitched(const float* x, float* y, int rows, int columns) {
  TRIREME_SHARED(float, tile, kTile* kPitch);
  read_tile<kPitch>(x, tile, rows, columns);
  sync_threads();
  write_tile<kPitch>(y, tile, rows, columns);
}
const Registered a1(wrong("rows of 32", pitched<32>, "without bank conflicts"));
const Registered a2(wrong("rows of 34", pitched<34>, "without bank conflicts"));
const Registered a3(wrong("rows of 47", pitched<47>, "bytes of shared memory, and the budget is"));

/// The tile is written transposed, and read by rows.
__global__ void transposed_write(const float* x, float* y, int rows, int columns) {
  TRIREME_SHARED(float, tile, kTile* kTile);
  for (int i = warp(); i < kTile; i += kRowsOfThreads)
    if (first_row() + i < rows && first_column() + lane() < columns)
      tile[lane() * kTile + i] = x[(first_row() + i) * columns + first_column() + lane()];
  sync_threads();
  for (int i = warp(); i < kTile; i += kRowsOfThreads)
    if (first_row() + lane() < rows && first_column() + i < columns)
      y[(first_column() + i) * rows + first_row() + lane()] = tile[i * kTile + lane()];
}
const Registered a4(wrong("written by columns", transposed_write, "without bank conflicts"));

/// Without shared memory.
__global__ void direct(const float* x, float* y, int rows, int columns) {
  for (int i = warp(); i < kTile; i += kRowsOfThreads) {
    const int row = first_row() + i, column = first_column() + lane();
    if (row < rows && column < columns) y[column * rows + row] = x[row * columns + column];
  }
}
const Registered a5(wrong("without shared memory", direct, "sectors of 32 bytes, where"));

/// No barrier. Each thread reads what others wrote.
__global__ void no_barrier(const float* x, float* y, int rows, int columns) {
  TRIREME_SHARED(float, tile, kTile * 33);
  read_tile<33>(x, tile, rows, columns);
  write_tile<33>(y, tile, rows, columns);
}
const Registered a6(wrong("no barrier", no_barrier, "of the shared memory of wrong.cu:"));

/// The lanes of a warp meet, but a column has elements of all warps.
__global__ void barrier_of_a_warp(const float* x, float* y, int rows, int columns) {
  TRIREME_SHARED(float, tile, kTile * 33);
  read_tile<33>(x, tile, rows, columns);
  sync_warp();
  write_tile<33>(y, tile, rows, columns);
}
const Registered a7(wrong("a barrier of each warp", barrier_of_a_warp, "of the shared memory of wrong.cu:"));

/// Threads beyond the edge leave before the barrier.
__global__ void leaves_early(const float* x, float* y, int rows, int columns) {
  TRIREME_SHARED(float, tile, kTile * 33);
  if (first_column() + lane() >= columns) return;
  read_tile<33>(x, tile, rows, columns);
  sync_threads();
  write_tile<33>(y, tile, rows, columns);
}
const Registered a8(wrong("leaves before the barrier", leaves_early, "deadlock"));

/// Reads beyond the edges of x, which are not written to y.
__global__ void unguarded_read(const float* x, float* y, int rows, int columns) {
  TRIREME_SHARED(float, tile, kTile * 33);
  for (int i = warp(); i < kTile; i += kRowsOfThreads)
    tile[i * 33 + lane()] = x[(first_row() + i) * columns + first_column() + lane()];
  sync_threads();
  write_tile<33>(y, tile, rows, columns);
}
const Registered a9(wrong("an unguarded read", unguarded_read, "outside of x [1]"));

/// The edges of x, also where those of y are meant: right for square matrices and whole tiles.
__global__ void edges_of_x(const float* x, float* y, int rows, int columns) {
  TRIREME_SHARED(float, tile, kTile * 33);
  read_tile<33>(x, tile, rows, columns);
  sync_threads();
  for (int i = warp(); i < kTile; i += kRowsOfThreads)
    if (first_row() + i < rows && first_column() + lane() < columns)
      y[(first_column() + i) * rows + first_row() + lane()] = tile[lane() * 33 + i];
}
const Registered a10(wrong("the edges of x for y", edges_of_x, "which nobody wrote before"));

/// The tiles stay where they were; only their elements are transposed: right where there is one tile.
__global__ void same_place(const float* x, float* y, int rows, int columns) {
  TRIREME_SHARED(float, tile, kTile * 33);
  read_tile<33>(x, tile, rows, columns);
  sync_threads();
  for (int i = warp(); i < kTile; i += kRowsOfThreads) {
    const int row = first_row() + i, column = first_column() + lane();
    if (row < columns && column < rows) y[row * rows + column] = tile[lane() * 33 + i];
  }
}
const Registered a11(wrong("tiles stay where they were", same_place, "x [1, 33]: y: not a number at [32, 0]"));

/// Writes whole tiles; what does not belong to y is written first, and some of it is overwritten later.
__global__ void unguarded_write(const float* x, float* y, int rows, int columns) {
  TRIREME_SHARED(float, tile, kTile * 33);
  for (int i = warp(); i < kTile; i += kRowsOfThreads) {
    const int row = std::min(first_row() + i, rows - 1), column = std::min(first_column() + lane(), columns - 1);
    tile[i * 33 + lane()] = x[row * columns + column];
  }
  sync_threads();
  for (int i = warp(); i < kTile; i += kRowsOfThreads)
    y[(first_column() + i) * rows + first_row() + lane()] = tile[lane() * 33 + i];
}
const Registered a12(wrong("an unguarded write", unguarded_write, "outside of y [1]"));

}  // namespace
}  // namespace trireme::puzzles::transposition
