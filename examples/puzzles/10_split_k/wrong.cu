// Puzzle 10: wrong kernels, most of which give the right matrix, each with a part of the message that it must get. Do
// not read this before your own answer: what is wrong shows what is right.
#include <algorithm>

#include "examples/puzzles/10_split_k/puzzle.h"

namespace trireme::puzzles::split_k {
namespace {

using cuda::sync_threads;

using Multiply = void(const float*, const float*, float*, int, int, int);
using Join = void(const float*, float*, int, int);

__device__ int x() { return static_cast<int>(threadIdx.x); }
__device__ int y() { return static_cast<int>(threadIdx.y); }
__device__ int row() { return static_cast<int>(blockIdx.y) * kTile + y(); }
__device__ int column() { return static_cast<int>(blockIdx.x) * kTile + x(); }
__device__ int part() { return static_cast<int>(blockIdx.z); }
__device__ int begin_of_part(int k) { return part() * length(k, static_cast<int>(gridDim.z)); }
__device__ int end_of_part(int k) { return std::min(begin_of_part(k) + length(k, static_cast<int>(gridDim.z)), k); }

/// The right way to fill the tiles, to multiply them, and to store a sum.
__device__ void fill(float* tile_a, float* tile_b, const float* a, const float* b, int m, int n, int k, int first) {
  tile_a[y() * kTile + x()] = row() < m && first + x() < k ? a[row() * k + first + x()] : 0;
  tile_b[y() * kTile + x()] = first + y() < k && column() < n ? b[(first + y()) * n + column()] : 0;
}
__device__ float products(const float* tile_a, const float* tile_b, float sum) {
  for (int i = 0; i < kTile; ++i) sum += tile_a[y() * kTile + i] * tile_b[i * kTile + x()];
  return sum;
}
__device__ void store(float* partial, float sum, int m, int n) {
  if (row() < m && column() < n) partial[(part() * m + row()) * n + column()] = sum;
}

__global__ void multiply(const float* a, const float* b, float* partial, int m, int n, int k) {
  TRIREME_SHARED(float, tile_a, kTile* kTile);
  TRIREME_SHARED(float, tile_b, kTile* kTile);
  float sum = 0;
  for (int first = begin_of_part(k); first < end_of_part(k); first += kTile) {
    sync_threads();
    fill(tile_a, tile_b, a, b, m, n, k, first);
    sync_threads();
    sum = products(tile_a, tile_b, sum);
  }
  store(partial, sum, m, n);
}
__global__ void join(const float* partial, float* c, int count, int parts) {
  const int i = static_cast<int>(blockIdx.x) * kJoinThreads + static_cast<int>(threadIdx.x);
  if (i >= count) return;
  float sum = 0;
  for (int p = 0; p < parts; ++p) sum += partial[p * count + i];
  c[i] = sum;
}

Answer wrong(std::string name, Multiply* kernel, Join* joins, std::string expected) {
  const auto blocks = [](int m, int n, int parts) {
    return (m + kTile - 1) / kTile * ((n + kTile - 1) / kTile) * parts;
  };
  return answer(std::move(name),
                {kernel, joins, blocks, [](int m, int n, int parts) { return long{m} * n * parts / 4; }},
                std::move(expected));
}

/// All blocks add to one place, in the order in which they finish.
__global__ void one_place(const float* a, const float* b, float* partial, int m, int n, int k) {
  float sum = 0;
  for (int i = begin_of_part(k); i < end_of_part(k) && row() < m && column() < n; ++i)
    sum += a[row() * k + i] * b[i * n + column()];
  if (row() >= m || column() >= n) return;
  if (part() > 0) store(partial, 0, m, n);
  float* const all = partial + row() * n + column();
  *all = part() == 0 ? sum : *all + sum;
}
const Registered a1(wrong("all blocks add to one place", one_place, join, "race on partial["));

/// A block reads the sums of the part before, as if the block of that part had finished.
__global__ void part_before(const float* a, const float* b, float* partial, int m, int n, int k) {
  TRIREME_SHARED(float, tile_a, kTile* kTile);
  TRIREME_SHARED(float, tile_b, kTile* kTile);
  const bool inside = row() < m && column() < n;
  float sum = part() > 0 && inside ? 0 * partial[((part() - 1) * m + row()) * n + column()] : 0;
  for (int first = begin_of_part(k); first < end_of_part(k); first += kTile) {
    sync_threads();
    fill(tile_a, tile_b, a, b, m, n, k, first);
    sync_threads();
    sum = products(tile_a, tile_b, sum);
  }
  store(partial, sum, m, n);
}
const Registered a2(wrong("reads the part of another block", part_before, join, "reads at wrong.cu:"));

/// No barrier between the writes of the tiles and the products.
__global__ void no_barrier_after(const float* a, const float* b, float* partial, int m, int n, int k) {
  TRIREME_SHARED(float, tile_a, kTile* kTile);
  TRIREME_SHARED(float, tile_b, kTile* kTile);
  float sum = 0;
  for (int first = begin_of_part(k); first < end_of_part(k); first += kTile) {
    sync_threads();
    fill(tile_a, tile_b, a, b, m, n, k, first);
    sum = products(tile_a, tile_b, sum);
  }
  store(partial, sum, m, n);
}
const Registered a3(wrong("no barrier after the writes", no_barrier_after, join, "of the shared memory of wrong.cu:"));

/// No barrier before the next writes of the tiles.
__global__ void no_barrier_before(const float* a, const float* b, float* partial, int m, int n, int k) {
  TRIREME_SHARED(float, tile_a, kTile* kTile);
  TRIREME_SHARED(float, tile_b, kTile* kTile);
  float sum = 0;
  for (int first = begin_of_part(k); first < end_of_part(k); first += kTile) {
    fill(tile_a, tile_b, a, b, m, n, k, first);
    sync_threads();
    sum = products(tile_a, tile_b, sum);
  }
  store(partial, sum, m, n);
}
const Registered a4(wrong("no barrier before the writes", no_barrier_before, join, "nothing orders the two"));

/// A block whose part is empty leaves at once. Memory from the allocator is often zero.
__global__ void empty_part(const float* a, const float* b, float* partial, int m, int n, int k) {
  if (begin_of_part(k) < end_of_part(k)) multiply(a, b, partial, m, n, k);
}
const Registered a5(wrong("an empty part writes nothing", empty_part, join, "partial: not a number at ["));

/// Reads a beyond k, and multiplies it by a 0 in the tile of b. After a row comes the next one; after the last, nothing.
__global__ void beyond_k(const float* a, const float* b, float* partial, int m, int n, int k) {
  TRIREME_SHARED(float, tile_a, kTile* kTile);
  TRIREME_SHARED(float, tile_b, kTile* kTile);
  float sum = 0;
  for (int first = begin_of_part(k); first < end_of_part(k); first += kTile) {
    sync_threads();
    tile_a[y() * kTile + x()] = row() < m ? a[row() * k + first + x()] : 0;
    tile_b[y() * kTile + x()] = first + y() < k && column() < n ? b[(first + y()) * n + column()] : 0;
    sync_threads();
    sum = products(tile_a, tile_b, sum);
  }
  store(partial, sum, m, n);
}
const Registered a6(wrong("reads a beyond k", beyond_k, join, "outside of a ["));

/// Threads without an element of the result do not fill the tiles either.
__global__ void leaves_early(const float* a, const float* b, float* partial, int m, int n, int k) {
  if (row() < m && column() < n) multiply(a, b, partial, m, n, k);
}
const Registered a7(wrong("threads beyond an edge leave", leaves_early, join, "deadlock"));

/// Without shared memory.
__global__ void no_tiles(const float* a, const float* b, float* partial, int m, int n, int k) {
  if (row() >= m || column() >= n) return;
  float sum = 0;
  for (int i = begin_of_part(k); i < end_of_part(k); ++i) sum += a[row() * k + i] * b[i * n + column()];
  store(partial, sum, m, n);
}
const Registered a8(wrong("without shared memory", no_tiles, join, "sectors of 32 bytes, where"));

/// The tile of a is stored by columns.
__global__ void transposed(const float* a, const float* b, float* partial, int m, int n, int k) {
  TRIREME_SHARED(float, tile_a, kTile* kTile);
  TRIREME_SHARED(float, tile_b, kTile* kTile);
  float sum = 0;
  for (int first = begin_of_part(k); first < end_of_part(k); first += kTile) {
    sync_threads();
    tile_a[x() * kTile + y()] = row() < m && first + x() < k ? a[row() * k + first + x()] : 0;
    tile_b[y() * kTile + x()] = first + y() < k && column() < n ? b[(first + y()) * n + column()] : 0;
    sync_threads();
    for (int i = 0; i < kTile; ++i) sum += tile_a[i * kTile + y()] * tile_b[i * kTile + x()];
  }
  store(partial, sum, m, n);
}
const Registered a9(wrong("a by columns", transposed, join, "without bank conflicts"));

/// The last part sums all of k.
__global__ void one_part(const float* a, const float* b, float* partial, int m, int n, int k) {
  TRIREME_SHARED(float, tile_a, kTile* kTile);
  TRIREME_SHARED(float, tile_b, kTile* kTile);
  float sum = 0;
  for (int first = 0; first < k && part() + 1 == static_cast<int>(gridDim.z); first += kTile) {
    sync_threads();
    fill(tile_a, tile_b, a, b, m, n, k, first);
    sync_threads();
    sum = products(tile_a, tile_b, sum);
  }
  store(partial, sum, m, n);
}
const Registered a10(wrong("one block sums all", one_part, join, "2 parts: partial: "));

/// Each thread joins four neighbours, one after the other.
__global__ void join_neighbours(const float* partial, float* c, int count, int parts) {
  const int thread = static_cast<int>(blockIdx.x) * kJoinThreads + static_cast<int>(threadIdx.x);
  for (int i = 4 * thread; i < std::min(4 * thread + 4, count); ++i) {
    float sum = 0;
    for (int p = 0; p < parts; ++p) sum += partial[p * count + i];
    c[i] = sum;
  }
}
const Registered a11(wrong("neighbours joined by one thread", multiply, join_neighbours, "sectors of 32 bytes, where"));

/// Reads the next part ahead of its use, also behind the last one.
__global__ void join_ahead(const float* partial, float* c, int count, int parts) {
  const int i = static_cast<int>(blockIdx.x) * kJoinThreads + static_cast<int>(threadIdx.x);
  if (i >= count) return;
  float sum = 0, next = partial[i];
  for (int p = 0; p < parts; ++p) {
    const float value = next;
    next = partial[(p + 1) * count + i];
    sum += value;
  }
  c[i] = sum;
}
const Registered a12(wrong("reads behind the last part", multiply, join_ahead, "outside of partial [1]"));

}  // namespace
}  // namespace trireme::puzzles::split_k
