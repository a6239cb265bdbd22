// Puzzle 7: wrong kernels, most of which give the right softmax of small numbers, or under one order of the threads, each
// with a part of the message that it must get. Do not read this before your own answer: what is wrong shows what is right.
#include <cmath>

#include "examples/puzzles/07_softmax/puzzle.h"

namespace trireme::puzzles::softmax {
namespace {

using cuda::Max;
using cuda::reduce_warp;
using cuda::shuffle_xor;
using cuda::Sum;
using cuda::sync_threads;

using Kernel = void(const float*, float*, int);

Answer wrong(std::string name, Kernel* softmax, std::string expected) {
  return answer(std::move(name),
                {softmax, [] { return 88; },
                 [](double top_a, double sum_a, double top_b, double sum_b) {
                   const double top = std::fmax(top_a, top_b);
                   return sum_a * std::exp(top_a - top) + sum_b * std::exp(top_b - top);
                 }},
                std::move(expected));
}

struct Part {
  float top, sum;
};
constexpr float kLowest = -3.4e38F;

__device__ Part join(Part a, Part b) {
  const float top = fmaxf(a.top, b.top);
  return {top, a.sum * expf(a.top - top) + b.sum * expf(b.top - top)};
}

__device__ int thread() { return static_cast<int>(threadIdx.x); }
__device__ const float* row_of(const float* x, int columns) { return x + static_cast<long>(blockIdx.x) * columns; }
__device__ float* row_of(float* y, int columns) { return y + static_cast<long>(blockIdx.x) * columns; }

/// The parts of the right kernel: a thread's pair, a warp's, that of all warps, and the results.
__device__ Part own_part(const float* row, int columns, float lowest = kLowest) {
  Part part = {lowest, 0};
  for (int c = thread(); c < columns; c += kThreads) part = join(part, {row[c], 1});
  return part;
}
__device__ Part over_warp(Part part) {
  for (int bits = 16; bits > 0; bits /= 2)
    part = join(part, {shuffle_xor(part.top, bits), shuffle_xor(part.sum, bits)});
  return part;
}
__device__ Part over_warps(const Part* parts) {
  Part part = parts[0];
  for (int i = 1; i < kWarps; ++i) part = join(part, parts[i]);
  return part;
}
__device__ void store(const float* row, float* out, int columns, Part part) {
  for (int c = thread(); c < columns; c += kThreads) out[c] = expf(row[c] - part.top) / part.sum;
}
__device__ void finish(Part part, Part* parts, const float* row, float* out, int columns) {
  part = over_warp(part);
  if (thread() % 32 == 0) parts[thread() / 32] = part;
  sync_threads();
  store(row, out, columns, over_warps(parts));
}

/// The exponentials of large numbers are infinite.
__global__ void without_top(const float* x, float* y, int columns) {
  TRIREME_SHARED(float, scratch, 32);
  const float* const row = row_of(x, columns);
  float sum = 0;
  for (int c = thread(); c < columns; c += kThreads) sum += expf(row[c]);
  sum = cuda::reduce_block<Sum>(sum, scratch);
  store(row, row_of(y, columns), columns, {0, sum});
}
const Registered a1(wrong("nothing is subtracted", without_top, "y: not a number at [0, 0]"));

/// The largest number of a row of negative ones is not 0.
__global__ void top_from_zero(const float* x, float* y, int columns) {
  TRIREME_SHARED(Part, parts, kWarps);
  const float* const row = row_of(x, columns);
  finish(own_part(row, columns, 0), parts, row, row_of(y, columns), columns);
}
const Registered a2(wrong("the largest number is at least 0", top_from_zero, "x [2, 31]: y: not a number at [1, 0]"));

/// -infinity minus -infinity: in threads without an element.
__global__ void top_from_infinity(const float* x, float* y, int columns) {
  TRIREME_SHARED(Part, parts, kWarps);
  const float* const row = row_of(x, columns);
  finish(own_part(row, columns, -INFINITY), parts, row, row_of(y, columns), columns);
}
const Registered a3(wrong("no element is -infinity", top_from_infinity, "x [1, 1]: y: not a number"));

/// The maximum in a read of its own.
__global__ void three_reads(const float* x, float* y, int columns) {
  TRIREME_SHARED(float, scratch, 32);
  const float* const row = row_of(x, columns);
  float top = kLowest, sum = 0;
  for (int c = thread(); c < columns; c += kThreads) top = fmaxf(top, row[c]);
  top = cuda::reduce_block<Max>(top, scratch);
  for (int c = thread(); c < columns; c += kThreads) sum += expf(row[c] - top);
  store(row, row_of(y, columns), columns, {top, cuda::reduce_block<Sum>(sum, scratch)});
}
const Registered a4(wrong("three reads", three_reads, "x is read in"));

/// The other warps' parts are read at once.
__global__ void no_barrier(const float* x, float* y, int columns) {
  TRIREME_SHARED(Part, parts, kWarps);
  const float* const row = row_of(x, columns);
  const Part part = over_warp(own_part(row, columns));
  if (thread() % 32 == 0) parts[thread() / 32] = part;
  cuda::sync_warp();
  store(row, row_of(y, columns), columns, over_warps(parts));
}
const Registered a5(wrong("no barrier between the warps", no_barrier, "of the shared memory of wrong.cu:"));

/// The sums overwrite the tops, which a slow warp has not read yet.
__global__ void scratch_again(const float* x, float* y, int columns) {
  TRIREME_SHARED(float, scratch, kWarps);
  const float* const row = row_of(x, columns);
  const Part own = own_part(row, columns);
  float top = reduce_warp<Max>(own.top), sum = 0;
  if (thread() % 32 == 0) scratch[thread() / 32] = top;
  sync_threads();
  for (int warp = 0; warp < kWarps; ++warp) top = fmaxf(top, scratch[warp]);
  const float warp_sum = reduce_warp<Sum>(own.sum * expf(own.top - top));
  if (thread() % 32 == 0) scratch[thread() / 32] = warp_sum;
  sync_threads();
  for (int warp = 0; warp < kWarps; ++warp) sum += scratch[warp];
  store(row, row_of(y, columns), columns, {top, sum});
}
const Registered a6(wrong("scratch memory is used again", scratch_again, "nothing orders the two"));

/// Sums to different tops are added as they are.
__global__ void not_rescaled(const float* x, float* y, int columns) {
  TRIREME_SHARED(float, scratch, 32);
  const float* const row = row_of(x, columns);
  const Part own = own_part(row, columns);
  const float top = cuda::reduce_block<Max>(own.top, scratch);
  store(row, row_of(y, columns), columns, {top, cuda::reduce_block<Sum>(own.sum, scratch)});
}
const Registered a7(wrong("sums to different tops", not_rescaled, "x [2, 31]: y: "));

/// Warps without an element write nothing.
__global__ void unwritten(const float* x, float* y, int columns) {
  TRIREME_SHARED(Part, parts, kWarps);
  const float* const row = row_of(x, columns);
  const Part part = over_warp(own_part(row, columns));
  if (thread() % 32 == 0 && thread() < columns) parts[thread() / 32] = part;
  sync_threads();
  store(row, row_of(y, columns), columns, over_warps(parts));
}
const Registered a8(wrong("warps without an element write nothing", unwritten, "which nobody wrote before"));

/// All parts that the array could have; the last of them are -infinity by luck, or not.
__global__ void too_many_parts(const float* x, float* y, int columns) {
  TRIREME_SHARED(Part, parts, kWarps);
  const float* const row = row_of(x, columns);
  const Part part = over_warp(own_part(row, columns));
  if (thread() % 32 == 0) parts[thread() / 32] = part;
  sync_threads();
  const Part all = reinterpret_cast<const Part*>(parts)[thread() % 32];
  const bool exists = thread() % 32 < kWarps;
  store(row, row_of(y, columns), columns, over_warp(exists ? all : Part{kLowest, 0}));
}
const Registered a9(wrong("parts of warps that do not exist", too_many_parts, "outside every allocation"));

/// Threads without an element leave.
__global__ void leaves_early(const float* x, float* y, int columns) {
  TRIREME_SHARED(Part, parts, kWarps);
  if (thread() >= columns) return;
  const float* const row = row_of(x, columns);
  finish(own_part(row, columns), parts, row, row_of(y, columns), columns);
}
const Registered a10(wrong("threads without an element leave", leaves_early, "deadlock"));

/// Reads beyond the row; these numbers count as -3.4e38.
__global__ void unguarded(const float* x, float* y, int columns) {
  TRIREME_SHARED(Part, parts, kWarps);
  const float* const row = row_of(x, columns);
  Part part = {kLowest, 0};
  for (int first = 0; first < columns; first += kThreads) {
    const float value = row[first + thread()];
    if (first + thread() < columns) part = join(part, {value, 1});
  }
  finish(part, parts, row, row_of(y, columns), columns);
}
const Registered a11(wrong("reads beyond x", unguarded, "outside of x [1]"));

/// Each thread has a range of the row.
__global__ void ranges(const float* x, float* y, int columns) {
  TRIREME_SHARED(Part, parts, kWarps);
  const float* const row = row_of(x, columns);
  const int length = (columns + kThreads - 1) / kThreads;
  Part part = {kLowest, 0};
  for (int c = thread() * length; c < columns && c < (thread() + 1) * length; ++c) part = join(part, {row[c], 1});
  finish(part, parts, row, row_of(y, columns), columns);
}
const Registered a12(wrong("a range for each thread", ranges, "sectors of 32 bytes, where"));

/// The exponentials wait in y for the sum.
__global__ void kept_in_y(const float* x, float* y, int columns) {
  TRIREME_SHARED(float, scratch, 32);
  const float* const row = row_of(x, columns);
  float* const out = row_of(y, columns);
  float top = kLowest, sum = 0;
  for (int c = thread(); c < columns; c += kThreads) top = fmaxf(top, row[c]);
  top = cuda::reduce_block<Max>(top, scratch);
  for (int c = thread(); c < columns; c += kThreads) sum += out[c] = expf(row[c] - top);
  sum = cuda::reduce_block<Sum>(sum, scratch);
  for (int c = thread(); c < columns; c += kThreads) out[c] /= sum;
}
const Registered a13(wrong("the exponentials are kept in y", kept_in_y, "y is read in"));

/// Every thread joins the parts of all threads.
__global__ void all_parts(const float* x, float* y, int columns) {
  TRIREME_SHARED(float, tops, kThreads);
  TRIREME_SHARED(float, sums, kThreads);
  const float* const row = row_of(x, columns);
  const Part own = own_part(row, columns);
  tops[thread()] = own.top;
  sums[thread()] = own.sum;
  sync_threads();
  Part all = {kLowest, 0};
  for (int i = 0; i < kThreads; ++i) all = join(all, {tops[i], sums[i]});
  store(row, row_of(y, columns), columns, all);
}
const Registered a14(wrong("everybody joins all parts", all_parts, "shared memory is busy for"));

}  // namespace
}  // namespace trireme::puzzles::softmax
