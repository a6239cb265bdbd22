// Puzzle 10: a solution.
#include <algorithm>

#include "examples/puzzles/10_split_k/puzzle.h"

namespace trireme::puzzles::split_k {
namespace {

using cuda::sync_threads;

int tiles(int size) { return (size + kTile - 1) / kTile; }
int blocks(int m, int n, int parts) { return tiles(m) * tiles(n) * parts; }
long sectors(int m, int n, int parts) { return 2 * (long{m} * n * parts / 8); }

__global__ void multiply(const float* a, const float* b, float* partial, int m, int n, int k) {
  TRIREME_SHARED(float, tile_a, kTile* kTile);
  TRIREME_SHARED(float, tile_b, kTile* kTile);
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const int row = static_cast<int>(blockIdx.y) * kTile + y, column = static_cast<int>(blockIdx.x) * kTile + x;
  const int part = static_cast<int>(blockIdx.z), share = length(k, static_cast<int>(gridDim.z));
  const int begin = part * share, end = std::min(begin + share, k);
  float sum = 0;
  for (int first = begin; first < end; first += kTile) {
    sync_threads();  // all have used the tiles of the step before
    tile_a[y * kTile + x] = row < m && first + x < k ? a[row * k + first + x] : 0;
    tile_b[y * kTile + x] = first + y < k && column < n ? b[(first + y) * n + column] : 0;
    sync_threads();
    for (int i = 0; i < kTile; ++i) sum += tile_a[y * kTile + i] * tile_b[i * kTile + x];
  }
  if (row < m && column < n) partial[(part * m + row) * n + column] = sum;  // 0 if the part is empty
}

__global__ void join(const float* partial, float* c, int count, int parts) {
  const int i = static_cast<int>(blockIdx.x) * kJoinThreads + static_cast<int>(threadIdx.x);
  if (i >= count) return;
  float sum = 0;
  for (int part = 0; part < parts; ++part) sum += partial[part * count + i];
  c[i] = sum;
}

const Registered registered(answer("solution", {multiply, join, blocks, sectors}));

}  // namespace
}  // namespace trireme::puzzles::split_k
