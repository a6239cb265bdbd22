// Puzzle 7: a solution.
#include <cmath>

#include "examples/puzzles/07_softmax/puzzle.h"

namespace trireme::puzzles::softmax {
namespace {

using cuda::shuffle_xor;
using cuda::sync_threads;

int largest_exponent() { return 88; }  // log(3.4e38) = 88.7

double joined_sum(double top_a, double sum_a, double top_b, double sum_b) {
  const double top = std::fmax(top_a, top_b);
  return sum_a * std::exp(top_a - top) + sum_b * std::exp(top_b - top);
}

/// Of some numbers: the largest, and the sum of exp(x - top). No number: {kLowest, 0}.
struct Part {
  float top, sum;
};
// Finite: -infinity minus itself would be NaN.
constexpr float kLowest = -3.4e38F;

__device__ Part join(Part a, Part b) {
  const float top = fmaxf(a.top, b.top);
  return {top, a.sum * expf(a.top - top) + b.sum * expf(b.top - top)};
}

// Largest number and sum come from one read. Parts are joined by elements, then by lanes, then by warps.
__global__ void softmax(const float* x, float* y, int columns) {
  TRIREME_SHARED(Part, parts, kWarps);
  const int thread = static_cast<int>(threadIdx.x);
  const float* const row = x + static_cast<long>(blockIdx.x) * columns;  // [columns]
  float* const out = y + static_cast<long>(blockIdx.x) * columns;        // [columns]
  Part part = {kLowest, 0};
  for (int c = thread; c < columns; c += kThreads) part = join(part, {row[c], 1});
  for (int bits = 16; bits > 0; bits /= 2)
    part = join(part, {shuffle_xor(part.top, bits), shuffle_xor(part.sum, bits)});
  if (thread % 32 == 0) parts[thread / 32] = part;
  sync_threads();
  part = parts[0];
  for (int warp = 1; warp < kWarps; ++warp) part = join(part, parts[warp]);
  for (int c = thread; c < columns; c += kThreads) out[c] = expf(row[c] - part.top) / part.sum;
}

const Registered registered(answer("solution", {softmax, largest_exponent, joined_sum}));

}  // namespace
}  // namespace trireme::puzzles::softmax
