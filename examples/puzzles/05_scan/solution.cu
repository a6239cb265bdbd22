// Puzzle 5: a solution.
#include <bit>

#include "examples/puzzles/05_scan/puzzle.h"

namespace trireme::puzzles::scan {
namespace {

int rounds(int threads) { return std::bit_width(static_cast<unsigned>(threads)) - 1; }

// In the round of distance d, all but d threads add.
int additions(int threads) {
  int sum = 0;
  for (int distance = 1; distance < threads; distance *= 2) sum += threads - distance;
  return sum;
}

// After the round of distance d, a place has the sum of 2 d elements up to its own. Two barriers a round: one between the
// reads and the writes of a round, one between these writes and the next round's reads.
__global__ void scan(const float* x, float* y, int columns) {
  TRIREME_SHARED(float, slab, kThreads);
  const int thread = static_cast<int>(threadIdx.x);
  const float* const row = x + static_cast<long>(blockIdx.x) * columns;  // [columns]
  float* const out = y + static_cast<long>(blockIdx.x) * columns;        // [columns]
  float before = 0;
  for (int first = 0; first < columns; first += kThreads) {
    const bool inside = first + thread < columns;
    float own = inside ? row[first + thread] : 0.0F;
    slab[thread] = own;
    sync_threads();
    for (int distance = 1; distance < kThreads; distance *= 2) {
      if (thread >= distance) own += slab[thread - distance];
      sync_threads();
      slab[thread] = own;
      sync_threads();
    }
    if (inside) out[first + thread] = before + own;
    before += slab[kThreads - 1];
    sync_threads();  // the next part overwrites the slab
  }
}

const Registered registered(answer("solution", {scan, rounds, additions}));

}  // namespace
}  // namespace trireme::puzzles::scan
