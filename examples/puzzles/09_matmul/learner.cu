// Puzzle 9: your answer. Fill in the gaps, marked GAP, one kernel after the other, and run
//   ./trireme puzzle 9
#include "examples/puzzles/09_matmul/puzzle.h"

namespace trireme::puzzles::matmul {
namespace {

using cuda::load_vector, cuda::store_vector, cuda::sync_threads;
using Four = cuda::Pack<float, 4>;  // .values[i]

// ---- predictions, with pencil and paper -------------------------------------------------------------------------------

/// Floats of a and b that all blocks read, with side x side elements of c in each block.
double floats_read(int m, int n, int k, int side) {
  return 0;  // GAP 1
}

/// Products for each float that a thread loads from shared memory, with mine x mine elements of c.
double products_per_load(int mine) {
  return 0;  // GAP 2
}

// ---- the kernels: c = a b. a [m, k], b [k, n], c [m, n] ---------------------------------------------------------------

/// One element a thread. Which of threadIdx.x and threadIdx.y is the row?
__global__ void naive(const float* a, const float* b, float* c, int m, int n, int k) {
  // GAP 3
}

/// One element a thread, with tiles in shared memory.
__global__ void tiles(const float* a, const float* b, float* c, int m, int n, int k) {
  TRIREME_SHARED(float, a_tile, kTile* kDepth);  // [kTile, kDepth]
  TRIREME_SHARED(float, b_tile, kDepth* kTile);  // [kDepth, kTile]
  float sum = 0;
  for (int start = 0; start < k; start += kDepth) {
    // GAP 4: each thread reads one element for each tile, or 0 beyond the edges; then kDepth products are added to sum.
  }
  // GAP 5: to c, if there is such an element.
}

/// kMine x kMine elements a thread. Which ones, so that neighbouring lanes want neighbouring words?
__global__ void registers(const float* a, const float* b, float* c, int m, int n, int k) {
  TRIREME_SHARED(float, a_tile, kBlock* kDepth);  // [kBlock, kDepth]
  TRIREME_SHARED(float, b_tile, kDepth* kBlock);  // [kDepth, kBlock]
  float sums[kMine][kMine] = {};
  // GAP 6: as above; a thread reads four elements for each tile, and loads 2 * kMine numbers for kMine * kMine products.
}

/// The same with load_vector<Four>(from) and store_vector(to, four): addresses are multiples of 16 bytes.
__global__ void vectors(const float* a, const float* b, float* c, int m, int n, int k) {
  TRIREME_SHARED(float, a_tile, kBlock* kDepth);  // [kBlock, kDepth]
  TRIREME_SHARED(float, b_tile, kDepth* kBlock);  // [kDepth, kBlock]
  Four sums[kMine] = {};
  // GAP 7
}

const Registered registered(answer("learner", {naive, tiles, registers, vectors, floats_read, products_per_load}));

}  // namespace
}  // namespace trireme::puzzles::matmul
