// Puzzle 12: your answer. Fill in the gaps, marked GAP, and run
//   ./trireme puzzle 12
#include "examples/puzzles/12_tma/puzzle.h"

namespace trireme::puzzles::tma {
namespace {

using namespace cuda;  // mbarrier_init and so on, tma_load_2d, sync_threads, to_float

// ---- predictions, with pencil and paper -------------------------------------------------------------------------------

/// The parity with which a thread waits at full[tile % kStages] for tile `tile`, counted from 0.
int parity(int tile) {
  return -1;  // GAP 1
}

/// The bytes that an mbarrier must expect for a tile of which only `rows` rows lie inside of x.
int bytes(int rows) {
  return 0;  // GAP 2
}

// ---- the kernel -------------------------------------------------------------------------------------------------------

/// y[c] = the sum of column c of x [rows, columns], which `map` describes.
__global__ void sums(const __grid_constant__ TensorMap map, float* y, int rows, int columns) {
  TRIREME_DYNAMIC_SHARED(memory, 1024);  // kStages tiles
  TRIREME_SHARED(std::uint64_t, full, kStages);
  TRIREME_SHARED(std::uint64_t, empty, kStages);
  const int thread = static_cast<int>(threadIdx.x), first = static_cast<int>(blockIdx.x) * kColumns;
  const int tiles = (rows + kRows - 1) / kRows;
  // GAP 3: thread 0 initialises the mbarriers. Nobody uses one before that.

  if (thread == kColumns) {
    // GAP 4: for each tile: wait until its stage is empty, announce the bytes, start the copy.
  }
  if (thread >= kColumns) return;
  float sum = 0;
  // GAP 5: for each tile: wait until it is there, add *element(its place, row, thread) of all kRows rows, give the
  // stage back.

  if (first + thread < columns) y[first + thread] = sum;
}

const Registered registered(answer("learner", {sums, parity, bytes}));

}  // namespace
}  // namespace trireme::puzzles::tma
