// Puzzle 10: your answer. Fill in the gaps, marked GAP, and run
//   ./trireme puzzle 10
#include <algorithm>

#include "examples/puzzles/10_split_k/puzzle.h"

namespace trireme::puzzles::split_k {
namespace {

using cuda::sync_threads;

// ---- predictions, with pencil and paper -------------------------------------------------------------------------------

/// Blocks of `multiply`: one for each tile of kTile x kTile elements and each part.
int blocks(int m, int n, int parts) {
  return 0;  // GAP 1
}

/// Sectors of 32 bytes that `partial` costs, written once and read once. m and n are multiples of 16.
long sectors(int m, int n, int parts) {
  return 0;  // GAP 2
}

// ---- the kernels ------------------------------------------------------------------------------------------------------

/// partial[p] = a b over the k of part p. a [m, k], b [k, n], partial [parts, m, n]
__global__ void multiply(const float* a, const float* b, float* partial, int m, int n, int k) {
  TRIREME_SHARED(float, tile_a, kTile* kTile);  // [row][k]
  TRIREME_SHARED(float, tile_b, kTile* kTile);  // [k][column]
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const int row = static_cast<int>(blockIdx.y) * kTile + y, column = static_cast<int>(blockIdx.x) * kTile + x;
  const int part = static_cast<int>(blockIdx.z), share = length(k, static_cast<int>(gridDim.z));
  float sum = 0;
  // GAP 3: the sum over this part's k, kTile of k at a time, through the two tiles.

  if (row < m && column < n) partial[(part * m + row) * n + column] = sum;
}

/// c = the sum of the parts, in a fixed order. partial [parts, count], c [count]
__global__ void join(const float* partial, float* c, int count, int parts) {
  const int i = static_cast<int>(blockIdx.x) * kJoinThreads + static_cast<int>(threadIdx.x);
  // GAP 4: element i.
}

const Registered registered(answer("learner", {multiply, join, blocks, sectors}));

}  // namespace
}  // namespace trireme::puzzles::split_k
