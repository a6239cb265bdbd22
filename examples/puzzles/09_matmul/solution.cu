// Puzzle 9: a solution.
#include "examples/puzzles/09_matmul/puzzle.h"

namespace trireme::puzzles::matmul {
namespace {

using cuda::load_vector;
using cuda::store_vector;
using cuda::sync_threads;
using Four = cuda::Pack<float, 4>;

// A block needs `side` rows of a and as many columns of b.
double floats_read(int m, int n, int k, int side) { return 2.0 * m * n * k / side; }

double products_per_load(int mine) { return mine / 2.0; }

__device__ int across() { return static_cast<int>(threadIdx.x); }
__device__ int down() { return static_cast<int>(threadIdx.y); }

// The lanes of a warp have two rows of c: they read two elements of a, and 16 neighbours of b.
__global__ void naive(const float* a, const float* b, float* c, int m, int n, int k) {
  const int row = static_cast<int>(blockIdx.y) * kTile + down(),
            column = static_cast<int>(blockIdx.x) * kTile + across();
  if (row >= m || column >= n) return;
  float sum = 0;
  for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + column];
  c[row * n + column] = sum;
}

// What 16 threads of a row need of a, and 16 of a column of b, is read once by the block. Beyond the edges are zeros.
__global__ void tiles(const float* a, const float* b, float* c, int m, int n, int k) {
  TRIREME_SHARED(float, a_tile, kTile* kDepth);  // [kTile, kDepth]
  TRIREME_SHARED(float, b_tile, kDepth* kTile);  // [kDepth, kTile]
  const int row = static_cast<int>(blockIdx.y) * kTile + down(),
            column = static_cast<int>(blockIdx.x) * kTile + across();
  float sum = 0;
  for (int start = 0; start < k; start += kDepth) {
    a_tile[down() * kDepth + across()] = row < m && start + across() < k ? a[row * k + start + across()] : 0.0F;
    b_tile[down() * kTile + across()] = start + down() < k && column < n ? b[(start + down()) * n + column] : 0.0F;
    sync_threads();
    for (int i = 0; i < kDepth; ++i) sum += a_tile[down() * kDepth + i] * b_tile[i * kTile + across()];
    sync_threads();
  }
  if (row < m && column < n) c[row * n + column] = sum;
}

// A thread's rows are 16 apart, and so are its columns: neighbouring threads have neighbouring columns.
__global__ void registers(const float* a, const float* b, float* c, int m, int n, int k) {
  TRIREME_SHARED(float, a_tile, kBlock* kDepth);  // [kBlock, kDepth]
  TRIREME_SHARED(float, b_tile, kDepth* kBlock);  // [kDepth, kBlock]
  const int first_row = static_cast<int>(blockIdx.y) * kBlock, first_column = static_cast<int>(blockIdx.x) * kBlock;
  float sums[kMine][kMine] = {};
  for (int start = 0; start < k; start += kDepth) {
    for (int i = down() * kThreads + across(); i < kBlock * kDepth; i += kThreads * kThreads) {
      const int row = first_row + i / kDepth, k_of_a = start + i % kDepth;
      const int k_of_b = start + i / kBlock, column = first_column + i % kBlock;
      a_tile[i] = row < m && k_of_a < k ? a[row * k + k_of_a] : 0.0F;
      b_tile[i] = k_of_b < k && column < n ? b[k_of_b * n + column] : 0.0F;
    }
    sync_threads();
    for (int i = 0; i < kDepth; ++i) {
      float x[kMine], y[kMine];
      for (int j = 0; j < kMine; ++j) x[j] = a_tile[(down() + kThreads * j) * kDepth + i];
      for (int j = 0; j < kMine; ++j) y[j] = b_tile[i * kBlock + across() + kThreads * j];
      for (int r = 0; r < kMine; ++r)
        for (int s = 0; s < kMine; ++s) sums[r][s] += x[r] * y[s];
    }
    sync_threads();
  }
  for (int r = 0; r < kMine; ++r)
    for (int s = 0; s < kMine; ++s) {
      const int row = first_row + down() + kThreads * r, column = first_column + across() + kThreads * s;
      if (row < m && column < n) c[row * n + column] = sums[r][s];
    }
}

// A thread has four rows and four columns that are neighbours. For four steps of k it loads four elements of each of its
// rows, and of each of the four rows of b: 8 loads for 64 multiplications.
__global__ void vectors(const float* a, const float* b, float* c, int m, int n, int k) {
  TRIREME_SHARED(float, a_tile, kBlock* kDepth);  // [kBlock, kDepth]
  TRIREME_SHARED(float, b_tile, kDepth* kBlock);  // [kDepth, kBlock]
  const int first_row = static_cast<int>(blockIdx.y) * kBlock, first_column = static_cast<int>(blockIdx.x) * kBlock;
  const int piece = down() * kThreads + across();  // of each tile: four floats
  Four sums[kMine] = {};                           // [row]: four columns
  for (int start = 0; start < k; start += kDepth) {
    const int row = first_row + 4 * piece / kDepth, k_of_a = start + 4 * piece % kDepth;
    const int k_of_b = start + 4 * piece / kBlock, column = first_column + 4 * piece % kBlock;
    store_vector(a_tile + 4 * piece, row < m && k_of_a < k ? load_vector<Four>(a + row * k + k_of_a) : Four{});
    store_vector(b_tile + 4 * piece, k_of_b < k && column < n ? load_vector<Four>(b + k_of_b * n + column) : Four{});
    sync_threads();
    for (int i = 0; i < kDepth; i += 4) {
      Four x[kMine];  // [row]: four of k
      for (int r = 0; r < kMine; ++r) x[r] = load_vector<Four>(a_tile + (kMine * down() + r) * kDepth + i);
      for (int j = 0; j < 4; ++j) {
        const Four y = load_vector<Four>(b_tile + (i + j) * kBlock + kMine * across());
        for (int r = 0; r < kMine; ++r)
          for (int s = 0; s < kMine; ++s) sums[r].values[s] += x[r].values[j] * y.values[s];
      }
    }
    sync_threads();
  }
  for (int r = 0; r < kMine; ++r) {
    const int row = first_row + kMine * down() + r, column = first_column + kMine * across();
    if (row < m && column < n) store_vector(c + row * n + column, sums[r]);
  }
}

const Registered registered(answer("solution", {naive, tiles, registers, vectors, floats_read, products_per_load}));

}  // namespace
}  // namespace trireme::puzzles::matmul
