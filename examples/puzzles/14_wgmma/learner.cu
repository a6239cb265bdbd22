// Puzzle 14: your answer. Fill in the gaps, marked GAP, and run
//   ./trireme puzzle 14
#include "examples/puzzles/14_wgmma/puzzle.h"

namespace trireme::puzzles::wgmma {
namespace {

using namespace cuda;  // wgmma_m64k16 and so on, swizzled, shared_address, sync_threads, store_vector

// ---- used by the kernel, and checked alone ----------------------------------------------------------------------------

/// The descriptor of an operand at `address`: its 128-byte rows are in the 128-byte swizzle.
__host__ __device__ std::uint64_t descriptor(std::uint32_t address) {
  return 0;  // GAP 1
}

/// row * kN + column of sum `i` of a thread.
__host__ __device__ int place(int thread, int i) {
  return 0;  // GAP 2
}

// ---- the kernel -------------------------------------------------------------------------------------------------------

/// Copies `lines` rows of x [rows, k] from `row` on, kStep of k from `first` on, to where wgmma finds them. What is
/// outside of x becomes zero.
__device__ void fill(std::byte* to, const bf16* x, int lines, int row, int rows, int first, int k) {
  // GAP 3
}

/// c [m, n] = a [m, k] times the transpose of b [n, k].
__global__ void multiply(const bf16* a, const bf16* b, float* c, int m, int n, int k) {
  TRIREME_DYNAMIC_SHARED(memory, 1024);
  std::byte *const tile_a = memory, *const tile_b = memory + kBytesA;
  const int row = static_cast<int>(blockIdx.y) * kM, column = static_cast<int>(blockIdx.x) * kN;
  float sums[kN / 2] = {};
  for (int first = 0; first < k; first += kStep) {
    fill(tile_a, a, kM, row, m, first, k);
    fill(tile_b, b, kN, column, n, first, k);
    // GAP 4: four products, 16 of k each, and what must lie before and after them.
  }
  // GAP 5: the sums that are inside of c, two at a time.
}

const Registered registered(answer("learner", {multiply, descriptor, place}));

}  // namespace
}  // namespace trireme::puzzles::wgmma
