// Puzzle 8: wrong kernels, most of which give the right norm of small numbers, or under one order of the threads, each with
// a part of the message that it must get. Do not read this before your own answer: what is wrong shows what is right.
#include <algorithm>

#include "examples/puzzles/08_layer_norm/puzzle.h"

namespace trireme::puzzles::layer_norm {
namespace {

using cuda::reduce_warp;
using cuda::shuffle_xor;
using cuda::Sum;
using cuda::sync_warp;

using Kernel = void(const float*, const float*, const float*, float*, int, int);

Answer wrong(std::string name, Kernel* layer_norm, std::string expected) {
  return answer(
      std::move(name),
      {layer_norm, [] { return 4096; },
       [](double count_a, double mean_a, double squares_a, double count_b, double mean_b, double squares_b) -> double {
         return squares_a + squares_b + (mean_b - mean_a) * (mean_b - mean_a) * count_a * count_b / (count_a + count_b);
       }},
      std::move(expected));
}

struct Moments {
  float count, mean, squares;
};

__device__ Moments join(Moments a, Moments b) {
  const float count = a.count + b.count;
  if (count == 0) return a;
  const float difference = b.mean - a.mean, share = b.count / count;
  return {count, a.mean + difference * share, a.squares + b.squares + difference * difference * a.count * share};
}

__device__ int lane() { return static_cast<int>(threadIdx.x); }
__device__ int warp() { return static_cast<int>(threadIdx.y); }
__device__ int row() { return static_cast<int>(blockIdx.x) * kRows + warp(); }

/// The parts of the right kernel: a lane's moments, the warp's, and the results. `x`, `y` [columns]: the warp's row
__device__ Moments own_moments(const float* x, int columns) {
  Moments own = {0, 0, 0};
  for (int c = lane(); c < columns; c += 32) own = join(own, {1, x[c], 0});
  return own;
}
__device__ Moments over_warp(Moments all) {
  for (int bits = 16; bits > 0; bits /= 2)
    all = join(all, {shuffle_xor(all.count, bits), shuffle_xor(all.mean, bits), shuffle_xor(all.squares, bits)});
  return all;
}
__device__ void store(const float* x, const float* gamma, const float* beta, float* y, int columns, float mean,
                      float variance) {
  const float scale = cuda::reciprocal_sqrt(variance + kEps);
  for (int c = lane(); c < columns; c += 32) y[c] = (x[c] - mean) * scale * gamma[c] + beta[c];
}
__device__ float variance(Moments moments) { return moments.squares / moments.count; }

/// The mean of the squares less the square of the mean.
__global__ void cancels(const float* x, const float* gamma, const float* beta, float* y, int rows, int columns) {
  if (row() >= rows) return;
  const float* const from = x + row() * columns;
  float sum = 0, squares = 0;
  for (int c = lane(); c < columns; c += 32) {
    sum += from[c];
    squares += from[c] * from[c];
  }
  const float mean = reduce_warp<Sum>(sum) / static_cast<float>(columns);
  const float mean_square = reduce_warp<Sum>(squares) / static_cast<float>(columns);
  store(from, gamma, beta, y + row() * columns, columns, mean, mean_square - mean * mean);
}
const Registered a1(wrong("mean square less squared mean", cancels, ": y: "));

/// The same, and what is negative becomes 0.
__global__ void cancels_to_zero(const float* x, const float* gamma, const float* beta, float* y, int rows,
                                int columns) {
  if (row() >= rows) return;
  const float* const from = x + row() * columns;
  float sum = 0, squares = 0;
  for (int c = lane(); c < columns; c += 32) {
    sum += from[c];
    squares += from[c] * from[c];
  }
  const float mean = reduce_warp<Sum>(sum) / static_cast<float>(columns);
  const float mean_square = reduce_warp<Sum>(squares) / static_cast<float>(columns);
  store(from, gamma, beta, y + row() * columns, columns, mean, std::max(mean_square - mean * mean, 0.0F));
}
const Registered a2(wrong("the same, not below 0", cancels_to_zero, ": y: "));

/// The mean in a read of its own.
__global__ void three_reads(const float* x, const float* gamma, const float* beta, float* y, int rows, int columns) {
  if (row() >= rows) return;
  const float* const from = x + row() * columns;
  float sum = 0, squares = 0;
  for (int c = lane(); c < columns; c += 32) sum += from[c];
  const float mean = reduce_warp<Sum>(sum) / static_cast<float>(columns);
  for (int c = lane(); c < columns; c += 32) squares += (from[c] - mean) * (from[c] - mean);
  store(from, gamma, beta, y + row() * columns, columns, mean, reduce_warp<Sum>(squares) / static_cast<float>(columns));
}
const Registered a3(wrong("three reads", three_reads, "x is read in"));

/// Lanes without an element have 0 / 0.
__global__ void empty_sets(const float* x, const float* gamma, const float* beta, float* y, int rows, int columns) {
  if (row() >= rows) return;
  const float* const from = x + row() * columns;
  Moments all = own_moments(from, columns);
  for (int bits = 16; bits > 0; bits /= 2) {
    const float count_b = shuffle_xor(all.count, bits), mean_b = shuffle_xor(all.mean, bits);
    const float squares_b = shuffle_xor(all.squares, bits), share = count_b / (all.count + count_b);
    const float difference = mean_b - all.mean;
    all.squares += squares_b + difference * difference * all.count * share;
    all.mean += difference * share;
    all.count += count_b;
  }
  store(from, gamma, beta, y + row() * columns, columns, all.mean, variance(all));
}
const Registered a4(wrong("sets without an element", empty_sets, "x [1, 1]: y: not a number"));

/// All lanes count the same, which they do if the row is a multiple of 32.
__global__ void equal_counts(const float* x, const float* gamma, const float* beta, float* y, int rows, int columns) {
  if (row() >= rows) return;
  const float* const from = x + row() * columns;
  Moments all = own_moments(from, columns);
  for (int bits = 16; bits > 0; bits /= 2) {
    const float difference = shuffle_xor(all.mean, bits) - all.mean;
    all.squares += shuffle_xor(all.squares, bits) + difference * difference * all.count / 2;
    all.mean += difference / 2;
    all.count *= 2;
  }
  store(from, gamma, beta, y + row() * columns, columns, all.mean, variance(all));
}
const Registered a5(wrong("all lanes count the same", equal_counts, "x [1, 1]: y: "));

/// The differences between the lanes' means are forgotten.
__global__ void means_apart(const float* x, const float* gamma, const float* beta, float* y, int rows, int columns) {
  if (row() >= rows) return;
  const float* const from = x + row() * columns;
  const Moments own = own_moments(from, columns);
  const float mean = over_warp(own).mean, squares = reduce_warp<Sum>(own.squares);
  store(from, gamma, beta, y + row() * columns, columns, mean, squares / static_cast<float>(columns));
}
const Registered a6(wrong("the lanes' means differ", means_apart, "x [5, 31]: y: "));

/// The variance of a sample: one less.
__global__ void one_less(const float* x, const float* gamma, const float* beta, float* y, int rows, int columns) {
  if (row() >= rows) return;
  const float* const from = x + row() * columns;
  const Moments all = over_warp(own_moments(from, columns));
  store(from, gamma, beta, y + row() * columns, columns, all.mean, all.squares / (all.count - 1));
}
const Registered a7(wrong("one less", one_less, "x [1, 1]: y: not a number"));

/// The last block has rows that do not exist; their results are not written.
__global__ void rows_beyond(const float* x, const float* gamma, const float* beta, float* y, int rows, int columns) {
  const float* const from = x + row() * columns;
  const Moments all = over_warp(own_moments(from, columns));
  if (row() < rows) store(from, gamma, beta, y + row() * columns, columns, all.mean, variance(all));
}
const Registered a8(wrong("rows that do not exist", rows_beyond, "outside of x [1]"));

/// Lanes without an element leave, and the others shuffle with them.
__global__ void leaves_early(const float* x, const float* gamma, const float* beta, float* y, int rows, int columns) {
  if (row() >= rows || lane() >= columns) return;
  const float* const from = x + row() * columns;
  const Moments all = over_warp(own_moments(from, columns));
  store(from, gamma, beta, y + row() * columns, columns, all.mean, variance(all));
}
const Registered a9(wrong("lanes without an element leave", leaves_early, "deadlock"));

/// Lane 0 joins all, and leaves mean and variance where the others find them, without a barrier of the warp.
__global__ void through_shared(const float* x, const float* gamma, const float* beta, float* y, int rows, int columns) {
  TRIREME_SHARED(Moments, found, kRows);
  if (row() >= rows) return;
  const float* const from = x + row() * columns;
  const Moments all = over_warp(own_moments(from, columns));
  if (lane() == 0) found[warp()] = all;
  store(from, gamma, beta, y + row() * columns, columns, found[warp()].mean, variance(found[warp()]));
}
const Registered a10(wrong("no barrier of the warp", through_shared, "of the shared memory of wrong.cu:"));

/// Lanes without an element write nothing, and lane 0 joins all that is there.
__global__ void unwritten(const float* x, const float* gamma, const float* beta, float* y, int rows, int columns) {
  TRIREME_SHARED(Moments, found, kRows * 32);
  if (row() >= rows) return;
  const float* const from = x + row() * columns;
  if (lane() < columns) found[warp() * 32 + lane()] = own_moments(from, columns);
  sync_warp();
  Moments all = {0, 0, 0};
  for (int i = 0; i < 32; ++i) {
    const Moments other = found[warp() * 32 + i];
    if (other.count > 0 && other.count <= static_cast<float>(columns)) all = join(all, other);
  }
  store(from, gamma, beta, y + row() * columns, columns, all.mean, variance(all));
}
const Registered a11(wrong("lanes without an element write nothing", unwritten, "which nobody wrote before"));

/// A barrier of the block, where one of the warp would do: the warps wait for each other.
__global__ void barrier_of_the_block(const float* x, const float* gamma, const float* beta, float* y, int rows,
                                     int columns) {
  TRIREME_SHARED(Moments, found, kRows);
  const bool exists = row() < rows;
  const float* const from = x + (exists ? row() : 0) * columns;
  const Moments all = over_warp(own_moments(from, columns));
  if (lane() == 0) found[warp()] = all;
  cuda::sync_threads();
  const Moments same = found[warp()];
  if (exists) store(from, gamma, beta, y + row() * columns, columns, same.mean, variance(same));
}
const Registered a12(wrong("a barrier of the block", barrier_of_the_block,
                           "barriers of a block: 1, and the budget is 0"));

/// And rows that do not exist have left before it.
__global__ void leaves_the_barrier(const float* x, const float* gamma, const float* beta, float* y, int rows,
                                   int columns) {
  TRIREME_SHARED(Moments, found, kRows);
  if (row() >= rows) return;
  const float* const from = x + row() * columns;
  const Moments all = over_warp(own_moments(from, columns));
  if (lane() == 0) found[warp()] = all;
  cuda::sync_threads();
  store(from, gamma, beta, y + row() * columns, columns, found[warp()].mean, variance(found[warp()]));
}
const Registered a13(wrong("rows that leave before a barrier", leaves_the_barrier, "deadlock"));

/// The normalised row waits in y for gamma and beta.
__global__ void in_two_steps(const float* x, const float* gamma, const float* beta, float* y, int rows, int columns) {
  if (row() >= rows) return;
  const float* const from = x + row() * columns;
  float* const to = y + row() * columns;
  const Moments all = over_warp(own_moments(from, columns));
  const float scale = cuda::reciprocal_sqrt(variance(all) + kEps);
  for (int c = lane(); c < columns; c += 32) to[c] = (from[c] - all.mean) * scale;
  for (int c = lane(); c < columns; c += 32) to[c] = to[c] * gamma[c] + beta[c];
}
const Registered a14(wrong("in two steps", in_two_steps, "y is read in"));

/// Each lane has a range of the row.
__global__ void ranges(const float* x, const float* gamma, const float* beta, float* y, int rows, int columns) {
  if (row() >= rows) return;
  const float* const from = x + row() * columns;
  const int length = (columns + 31) / 32;
  Moments own = {0, 0, 0};
  for (int c = lane() * length; c < std::min(columns, (lane() + 1) * length); ++c) own = join(own, {1, from[c], 0});
  const Moments all = over_warp(own);
  store(from, gamma, beta, y + row() * columns, columns, all.mean, variance(all));
}
const Registered a15(wrong("a range for each lane", ranges, "sectors of 32 bytes, where"));

}  // namespace
}  // namespace trireme::puzzles::layer_norm
