// Puzzle 9: wrong kernels, most of which give the right product, each with a part of the message that it must get. Do not
// read this before your own answer: what is wrong shows what is right.
#include <algorithm>

#include "examples/puzzles/09_matmul/puzzle.h"

namespace trireme::puzzles::matmul {
namespace {

using cuda::load_vector;
using cuda::store_vector;
using cuda::sync_threads;
using Four = cuda::Pack<float, 4>;

Answer wrong(std::string name, Answers kernel, std::string expected) {
  kernel.floats_read = [](int m, int n, int k, int side) { return 2.0 * m * n * k / side; };
  kernel.products_per_load = [](int mine) { return mine / 2.0; };
  return answer(std::move(name), kernel, std::move(expected));
}
Answer wrong_naive(std::string name, Kernel* kernel, std::string expected) {
  return wrong(std::move(name), {kernel, nullptr, nullptr, nullptr, nullptr, nullptr}, std::move(expected));
}
Answer wrong_tiles(std::string name, Kernel* kernel, std::string expected) {
  return wrong(std::move(name), {nullptr, kernel, nullptr, nullptr, nullptr, nullptr}, std::move(expected));
}
Answer wrong_registers(std::string name, Kernel* kernel, std::string expected) {
  return wrong(std::move(name), {nullptr, nullptr, kernel, nullptr, nullptr, nullptr}, std::move(expected));
}
Answer wrong_vectors(std::string name, Kernel* kernel, std::string expected) {
  return wrong(std::move(name), {nullptr, nullptr, nullptr, kernel, nullptr, nullptr}, std::move(expected));
}

__device__ int across() { return static_cast<int>(threadIdx.x); }
__device__ int down() { return static_cast<int>(threadIdx.y); }
__device__ int thread() { return down() * kThreads + across(); }
template <int Side>
__device__ int first_row() {
  return static_cast<int>(blockIdx.y) * Side;
}
template <int Side>
__device__ int first_column() {
  return static_cast<int>(blockIdx.x) * Side;
}

// ---- naive ------------------------------------------------------------------------------------------------------------

/// threadIdx.x is the row: the lanes of a warp read 16 rows of a.
__global__ void rows_across(const float* a, const float* b, float* c, int m, int n, int k) {
  const int row = first_row<kTile>() + across(), column = first_column<kTile>() + down();
  if (row >= m || column >= n) return;
  float sum = 0;
  for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + column];
  c[row * n + column] = sum;
}
const Registered a1(wrong_naive("naive: lanes have rows", rows_across, "a is read in"));

/// Only the store is guarded.
__global__ void unguarded(const float* a, const float* b, float* c, int m, int n, int k) {
  const int row = first_row<kTile>() + down(), column = first_column<kTile>() + across();
  float sum = 0;
  for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + column];
  if (row < m && column < n) c[row * n + column] = sum;
}
const Registered a2(wrong_naive("naive: only the store is guarded", unguarded, "outside of a [1]"));

/// The sum is made in c.
__global__ void sum_in_c(const float* a, const float* b, float* c, int m, int n, int k) {
  const int row = first_row<kTile>() + down(), column = first_column<kTile>() + across();
  if (row >= m || column >= n) return;
  c[row * n + column] = 0;
  for (int i = 0; i < k; ++i) c[row * n + column] += a[row * k + i] * b[i * n + column];
}
const Registered a3(wrong_naive("naive: the sum is made in c", sum_in_c, "c is read in"));

/// c is expected to be zero before.
__global__ void adds_to_c(const float* a, const float* b, float* c, int m, int n, int k) {
  const int row = first_row<kTile>() + down(), column = first_column<kTile>() + across();
  if (row >= m || column >= n) return;
  for (int i = 0; i < k; ++i) c[row * n + column] += a[row * k + i] * b[i * n + column];
}
const Registered a4(wrong_naive("naive: adds to what is in c", adds_to_c, "c[0], which nobody wrote before"));

// ---- tiles ------------------------------------------------------------------------------------------------------------

/// The right tiles, except for what a template argument changes.
template <bool BarrierBefore, bool BarrierAfter, bool Zeros>
__global__ void tiled(const float* a, const float* b, float* c, int m, int n, int k) {
  TRIREME_SHARED(float, a_tile, kTile* kDepth);
  TRIREME_SHARED(float, b_tile, kDepth* kTile);
  const int row = first_row<kTile>() + down(), column = first_column<kTile>() + across();
  float sum = 0;
  for (int start = 0; start < k; start += kDepth) {
    const bool a_exists = row < m && start + across() < k, b_exists = start + down() < k && column < n;
    if (a_exists || Zeros) a_tile[thread()] = a_exists ? a[row * k + start + across()] : 0.0F;
    if (b_exists || Zeros) b_tile[thread()] = b_exists ? b[(start + down()) * n + column] : 0.0F;
    if (BarrierBefore) sync_threads();
    for (int i = 0; i < kDepth; ++i) {
      const float product = a_tile[down() * kDepth + i] * b_tile[i * kTile + across()];
      if (start + i < k) sum += product;
    }
    if (BarrierAfter) sync_threads();
  }
  if (row < m && column < n) c[row * n + column] = sum;
}
const Registered a5(wrong_tiles("tiles: no barrier after the copies", tiled<false, true, true>,
                                "of the shared memory of wrong.cu:"));
const Registered a6(wrong_tiles("tiles: no barrier before the next copies", tiled<true, false, true>,
                                "nothing orders the two"));
const Registered a7(wrong_tiles("tiles: nothing at the edges", tiled<true, true, false>, "which nobody wrote before"));

/// Threads without an element of c leave: the others wait for them.
__global__ void leaves_early(const float* a, const float* b, float* c, int m, int n, int k) {
  TRIREME_SHARED(float, a_tile, kTile* kDepth);
  TRIREME_SHARED(float, b_tile, kDepth* kTile);
  const int row = first_row<kTile>() + down(), column = first_column<kTile>() + across();
  if (row >= m || column >= n) return;
  float sum = 0;
  for (int start = 0; start < k; start += kDepth) {
    a_tile[thread()] = start + across() < k ? a[row * k + start + across()] : 0.0F;
    b_tile[thread()] = start + down() < k ? b[(start + down()) * n + column] : 0.0F;
    sync_threads();
    for (int i = 0; i < kDepth; ++i) sum += a_tile[down() * kDepth + i] * b_tile[i * kTile + across()];
    sync_threads();
  }
  c[row * n + column] = sum;
}
const Registered a8(wrong_tiles("tiles: threads without an element leave", leaves_early, "deadlock"));

/// The tile of a is written by columns.
__global__ void a_by_columns(const float* a, const float* b, float* c, int m, int n, int k) {
  TRIREME_SHARED(float, a_tile, kDepth* kTile);
  TRIREME_SHARED(float, b_tile, kDepth* kTile);
  const int row = first_row<kTile>() + down(), column = first_column<kTile>() + across();
  float sum = 0;
  for (int start = 0; start < k; start += kDepth) {
    a_tile[across() * kTile + down()] = row < m && start + across() < k ? a[row * k + start + across()] : 0.0F;
    b_tile[thread()] = start + down() < k && column < n ? b[(start + down()) * n + column] : 0.0F;
    sync_threads();
    for (int i = 0; i < kDepth; ++i) sum += a_tile[i * kTile + down()] * b_tile[i * kTile + across()];
    sync_threads();
  }
  if (row < m && column < n) c[row * n + column] = sum;
}
const Registered a9(wrong_tiles("tiles: a is written by columns", a_by_columns, "without bank conflicts"));

/// Beyond the last k, the last one again.
__global__ void last_again(const float* a, const float* b, float* c, int m, int n, int k) {
  TRIREME_SHARED(float, a_tile, kTile* kDepth);
  TRIREME_SHARED(float, b_tile, kDepth* kTile);
  const int row = first_row<kTile>() + down(), column = first_column<kTile>() + across();
  float sum = 0;
  for (int start = 0; start < k; start += kDepth) {
    a_tile[thread()] = a[std::min(row, m - 1) * k + std::min(start + across(), k - 1)];
    b_tile[thread()] = b[std::min(start + down(), k - 1) * n + std::min(column, n - 1)];
    sync_threads();
    for (int i = 0; i < kDepth; ++i) sum += a_tile[down() * kDepth + i] * b_tile[i * kTile + across()];
    sync_threads();
  }
  if (row < m && column < n) c[row * n + column] = sum;
}
const Registered a10(wrong_tiles("tiles: the last k again", last_again, "m, n, k = 1, 1, 1: c: "));

// ---- registers --------------------------------------------------------------------------------------------------------

__device__ void copy_tiles(const float* a, const float* b, float* a_tile, float* b_tile, int start, int m, int n,
                           int k) {
  for (int i = thread(); i < kBlock * kDepth; i += kThreads * kThreads) {
    const int row = first_row<kBlock>() + i / kDepth, k_of_a = start + i % kDepth;
    const int k_of_b = start + i / kBlock, column = first_column<kBlock>() + i % kBlock;
    a_tile[i] = row < m && k_of_a < k ? a[row * k + k_of_a] : 0.0F;
    b_tile[i] = k_of_b < k && column < n ? b[k_of_b * n + column] : 0.0F;
  }
}

/// A thread's rows and columns are Element apart, and the first of its neighbour is Thread further on.
template <int Thread, int Element>
__global__ void four_by_four(const float* a, const float* b, float* c, int m, int n, int k) {
  TRIREME_SHARED(float, a_tile, kBlock* kDepth);
  TRIREME_SHARED(float, b_tile, kDepth* kBlock);
  float sums[kMine][kMine] = {};
  for (int start = 0; start < k; start += kDepth) {
    copy_tiles(a, b, a_tile, b_tile, start, m, n, k);
    sync_threads();
    for (int i = 0; i < kDepth; ++i) {
      float x[kMine], y[kMine];
      for (int j = 0; j < kMine; ++j) x[j] = a_tile[(Thread * down() + Element * j) * kDepth + i];
      for (int j = 0; j < kMine; ++j) y[j] = b_tile[i * kBlock + Thread * across() + Element * j];
      for (int r = 0; r < kMine; ++r)
        for (int s = 0; s < kMine; ++s) sums[r][s] += x[r] * y[s];
    }
    sync_threads();
  }
  for (int r = 0; r < kMine; ++r)
    for (int s = 0; s < kMine; ++s) {
      const int row = first_row<kBlock>() + Thread * down() + Element * r;
      const int column = first_column<kBlock>() + Thread * across() + Element * s;
      if (row < m && column < n) c[row * n + column] = sums[r][s];
    }
}
/// A thread has neighbouring columns: the lanes want words that are four apart.
const Registered a11(wrong_registers("registers: neighbouring columns", four_by_four<kMine, 1>,
                                     "without bank conflicts"));

/// One element after the other, with two loads for each product.
__global__ void one_by_one(const float* a, const float* b, float* c, int m, int n, int k) {
  TRIREME_SHARED(float, a_tile, kBlock* kDepth);
  TRIREME_SHARED(float, b_tile, kDepth* kBlock);
  float sums[kMine][kMine] = {};
  for (int start = 0; start < k; start += kDepth) {
    copy_tiles(a, b, a_tile, b_tile, start, m, n, k);
    sync_threads();
    for (int r = 0; r < kMine; ++r)
      for (int s = 0; s < kMine; ++s)
        for (int i = 0; i < kDepth; ++i)
          sums[r][s] += a_tile[(down() + kThreads * r) * kDepth + i] * b_tile[i * kBlock + across() + kThreads * s];
    sync_threads();
  }
  for (int r = 0; r < kMine; ++r)
    for (int s = 0; s < kMine; ++s) {
      const int row = first_row<kBlock>() + down() + kThreads * r;
      const int column = first_column<kBlock>() + across() + kThreads * s;
      if (row < m && column < n) c[row * n + column] = sums[r][s];
    }
}
const Registered a12(wrong_registers("registers: one element after the other", one_by_one,
                                     "shared memory is busy for"));

// ---- vectors ----------------------------------------------------------------------------------------------------------

/// The right vectors, except for what a template argument changes.
template <bool RowGuard, bool BarrierAfter, int BPitch>
__global__ void by_fours(const float* a, const float* b, float* c, int m, int n, int k) {
  TRIREME_SHARED(float, a_tile, kBlock* kDepth);
  TRIREME_SHARED(float, b_tile, kDepth* BPitch);
  Four sums[kMine] = {};
  for (int start = 0; start < k; start += kDepth) {
    const int row = first_row<kBlock>() + 4 * thread() / kDepth, k_of_a = start + 4 * thread() % kDepth;
    const int k_of_b = start + 4 * thread() / kBlock, column = first_column<kBlock>() + 4 * thread() % kBlock;
    const bool a_exists = (row < m || !RowGuard) && k_of_a < k, b_exists = k_of_b < k && column < n;
    store_vector(a_tile + 4 * thread(), a_exists ? load_vector<Four>(a + row * k + k_of_a) : Four{});
    store_vector(b_tile + 4 * thread() / kBlock * BPitch + 4 * thread() % kBlock,
                 b_exists ? load_vector<Four>(b + k_of_b * n + column) : Four{});
    sync_threads();
    for (int i = 0; i < kDepth; ++i) {
      const Four y = load_vector<Four>(b_tile + i * BPitch + kMine * across());
      for (int r = 0; r < kMine; ++r) {
        const float x = a_tile[(kMine * down() + r) * kDepth + i];
        for (int s = 0; s < kMine; ++s) sums[r].values[s] += x * y.values[s];
      }
    }
    if (BarrierAfter) sync_threads();
  }
  for (int r = 0; r < kMine; ++r) {
    const int row = first_row<kBlock>() + kMine * down() + r, column = first_column<kBlock>() + kMine * across();
    if (row < m && column < n) store_vector(c + row * n + column, sums[r]);
  }
}
const Registered a13(wrong_vectors("vectors: the kernel of the step before", four_by_four<1, kThreads>,
                                   "times, and the budget is"));
/// One element of a at a time, of two rows that are 64 words apart.
const Registered a14(wrong_vectors("vectors: only b by fours", by_fours<true, true, kBlock>, "without bank conflicts"));
const Registered a15(wrong_vectors("vectors: rows that do not exist", by_fours<false, true, kBlock>,
                                   "outside of a [4]"));
const Registered a16(wrong_vectors("vectors: no barrier before the next copies", by_fours<true, false, kBlock>,
                                   "nothing orders the two"));
const Registered a17(wrong_vectors("vectors: rows of 65 floats", by_fours<true, true, kBlock + 1>,
                                   "an address that is not a multiple of its size"));

}  // namespace
}  // namespace trireme::puzzles::matmul
