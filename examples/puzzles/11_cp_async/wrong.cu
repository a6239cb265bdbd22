// Puzzle 11: wrong kernels, most of which give the right product when copies are fast, each with a part of the message
// that it must get. Do not read this before your own answer: what is wrong shows what is right.
#include "examples/puzzles/11_cp_async/puzzle.h"

namespace trireme::puzzles::pipeline {
namespace {

using namespace cuda;

using Kernel = void(const float*, const float*, float*, int, int, int);

Answer wrong(std::string name, Kernel* multiply, std::string expected) {
  return answer(std::move(name), {multiply, [](double speed, double time, int count) { return speed * time / count; }},
                std::move(expected));
}

__device__ int thread() { return static_cast<int>(threadIdx.x); }
__device__ int x() { return thread() % kTile; }
__device__ int y() { return thread() / kTile; }
__device__ int row() { return static_cast<int>(blockIdx.y) * kTile; }
__device__ int column() { return static_cast<int>(blockIdx.x) * kTile; }
constexpr int kElements = kTile * kTile;

/// How pieces that are outside are copied.
enum class Edge : std::uint8_t { right, all_valid, skipped, rows_only };

template <Edge kEdge = Edge::right, int kPitch = kTile>
__device__ void copy_piece(float* tile, const float* from, int first_row, int first_column, int rows, int columns) {
  const int piece = thread() % 64, line = piece / 4, at = piece % 4 * kPiece;
  const bool inside = first_row + line < rows && (first_column + at < columns || kEdge == Edge::rows_only);
  const float* const source = from + (first_row + line) * columns + first_column + at;
  if (kEdge == Edge::all_valid)
    cp_async_16(tile + line * kPitch + at, source);
  else if (kEdge == Edge::right || kEdge == Edge::rows_only || inside)
    cp_async_16(tile + line * kPitch + at, inside ? source : from, inside ? 16 : 0);
}
/// Starts the copy of a step's tiles, without the commit.
template <Edge kEdge = Edge::right, int kPitch = kTile>
__device__ void copy(float* tile_a, float* tile_b, const float* a, const float* b, int m, int n, int k, int step) {
  if (thread() < 64)
    copy_piece<kEdge, kPitch>(tile_a, a, row(), step * kTile, m, k);
  else
    copy_piece<kEdge, kPitch>(tile_b, b, step * kTile, column(), k, n);
}
template <int kPitch = kTile>
__device__ void add_products(const float* tile_a, const float* tile_b, float* sums) {
  for (int i = 0; i < kTile; ++i) {
    const float value = tile_b[i * kPitch + x()];
    sums[0] += tile_a[y() * kPitch + i] * value;
    sums[1] += tile_a[(y() + 8) * kPitch + i] * value;
  }
}
__device__ void store(const float* sums, float* c, int m, int n) {
  for (int i = 0; i < 2; ++i)
    if (const int line = row() + y() + 8 * i; line < m && column() + x() < n) c[line * n + column() + x()] = sums[i];
}

/// What is wrong. Everything else is right.
enum class Bug : std::uint8_t { no_wait, wait_for_all_but_one, no_barrier, copy_before_barrier, no_commit, no_overlap };

template <Bug kBug>
__global__ void multiply(const float* a, const float* b, float* c, int m, int n, int k) {
  TRIREME_SHARED(float, tiles_a, 2 * kElements);
  TRIREME_SHARED(float, tiles_b, 2 * kElements);
  float sums[2] = {};
  copy(tiles_a, tiles_b, a, b, m, n, k, 0);
  cp_async_commit();
  for (int step = 0; step < steps(k); ++step) {
    const int own = step % 2 * kElements, other = kElements - own;
    const bool more = step + 1 < steps(k);
    if (kBug == Bug::copy_before_barrier && more) copy(tiles_a + other, tiles_b + other, a, b, m, n, k, step + 1);
    if (kBug == Bug::copy_before_barrier) {
      cp_async_commit();
      cp_async_wait<1>();
    } else if (kBug == Bug::wait_for_all_but_one && more) {
      cp_async_wait<1>();
    } else if (kBug != Bug::no_wait || !more) {
      cp_async_wait<0>();
    }
    if (kBug != Bug::no_barrier) sync_threads();
    if (kBug != Bug::copy_before_barrier && more) copy(tiles_a + other, tiles_b + other, a, b, m, n, k, step + 1);
    if (kBug != Bug::no_commit && kBug != Bug::copy_before_barrier) cp_async_commit();
    if (kBug == Bug::no_overlap) cp_async_wait<0>();
    add_products(tiles_a + own, tiles_b + own, sums);
  }
  store(sums, c, m, n);
}
/// What a thread reads may still be on its way, unless it is the last step's.
const Registered a1(wrong("no wait", multiply<Bug::no_wait>, "writes by cp.async at wrong.cu:"));
/// The group that may be unfinished is the one that is needed: the next one is not started yet.
const Registered a2(wrong("waits for all but one", multiply<Bug::wait_for_all_but_one>,
                          "writes by cp.async at wrong.cu:"));
/// Each thread has waited for its own pieces, and reads those of others.
const Registered a3(wrong("no barrier", multiply<Bug::no_barrier>, "writes by cp.async at wrong.cu:"));
/// Some threads still read the buffer that is overwritten.
const Registered a4(wrong("copies before the barrier", multiply<Bug::copy_before_barrier>, "nothing orders the two"));
/// A wait covers only groups that were committed.
const Registered a5(wrong("no commit", multiply<Bug::no_commit>, "writes by cp.async at wrong.cu:"));
/// Waits for the next step's tiles before it uses this step's.
const Registered a6(wrong("waits at once", multiply<Bug::no_overlap>, "are made while no cp.async is in flight"));

/// One buffer, which is filled and used in turn.
__global__ void one_buffer(const float* a, const float* b, float* c, int m, int n, int k) {
  TRIREME_SHARED(float, tile_a, kElements);
  TRIREME_SHARED(float, tile_b, kElements);
  float sums[2] = {};
  for (int step = 0; step < steps(k); ++step) {
    sync_threads();
    copy(tile_a, tile_b, a, b, m, n, k, step);
    cp_async_commit();
    cp_async_wait<0>();
    sync_threads();
    add_products(tile_a, tile_b, sums);
  }
  store(sums, c, m, n);
}
const Registered a7(wrong("one buffer", one_buffer, "are made while no cp.async is in flight"));

/// Two buffers, and ordinary loads and stores: each thread waits for its loads before it can store.
__global__ void ordinary_loads(const float* a, const float* b, float* c, int m, int n, int k) {
  TRIREME_SHARED(float, tiles_a, 2 * kElements);
  TRIREME_SHARED(float, tiles_b, 2 * kElements);
  float sums[2] = {};
  for (int step = 0; step < steps(k); ++step) {
    const int own = step % 2 * kElements;
    for (int i = thread(); i < kElements; i += kThreads) {
      const int line = i / kTile, at = i % kTile, first = step * kTile;
      tiles_a[own + i] = row() + line < m && first + at < k ? a[(row() + line) * k + first + at] : 0;
      tiles_b[own + i] = first + line < k && column() + at < n ? b[(first + line) * n + column() + at] : 0;
    }
    sync_threads();
    add_products(tiles_a + own, tiles_b + own, sums);
  }
  store(sums, c, m, n);
}
const Registered a8(wrong("ordinary loads", ordinary_loads, "100% are made while no cp.async is in flight"));

/// The right order of copies, waits and barriers.
template <Edge kEdge, int kPitch>
__global__ void in_order(const float* a, const float* b, float* c, int m, int n, int k) {
  constexpr int kBuffer = kTile * kPitch;
  TRIREME_SHARED(float, tiles_a, 2 * kBuffer);
  TRIREME_SHARED(float, tiles_b, 2 * kBuffer);
  float sums[2] = {};
  copy<kEdge, kPitch>(tiles_a, tiles_b, a, b, m, n, k, 0);
  cp_async_commit();
  for (int step = 0; step < steps(k); ++step) {
    const int own = step % 2 * kBuffer, other = kBuffer - own;
    cp_async_wait<0>();
    sync_threads();
    if (step + 1 < steps(k)) copy<kEdge, kPitch>(tiles_a + other, tiles_b + other, a, b, m, n, k, step + 1);
    cp_async_commit();
    add_products<kPitch>(tiles_a + own, tiles_b + own, sums);
  }
  store(sums, c, m, n);
}
/// All 16 bytes of a piece are read, also outside of the array.
const Registered a9(wrong("every piece is valid", in_order<Edge::all_valid, kTile>, "outside of a [4]"));
/// Pieces that are outside are not copied, nor filled with zeros.
const Registered a10(wrong("pieces outside are left out", in_order<Edge::skipped, kTile>, "which nobody wrote before"));
/// A piece beyond the last column is the beginning of the next row.
const Registered a11(wrong("columns are not checked", in_order<Edge::rows_only, kTile>, "outside of a [4]"));
/// Rows are padded to 20 floats. There was no conflict to avoid, and now the pieces of two rows share banks.
const Registered a12(wrong("padded rows", in_order<Edge::right, 20>, "without bank conflicts"));

}  // namespace
}  // namespace trireme::puzzles::pipeline
