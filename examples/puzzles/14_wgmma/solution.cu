// Puzzle 14: a solution.
#include "examples/puzzles/14_wgmma/puzzle.h"

namespace trireme::puzzles::wgmma {
namespace {

using namespace cuda;

__host__ __device__ std::uint64_t descriptor(std::uint32_t address) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62, kEightRows = std::uint64_t{1024 >> 4} << 32;
  return ((address >> 4) & 0x3fffU) | kEightRows | kSwizzle128;
}

__host__ __device__ int row_of(int thread, int i) { return 16 * (thread / 32) + thread % 32 / 4 + 8 * (i / 2 % 2); }
__host__ __device__ int column_of(int thread, int i) { return 8 * (i / 4) + 2 * (thread % 4) + i % 2; }
__host__ __device__ int place(int thread, int i) { return row_of(thread, i) * kN + column_of(thread, i); }

/// `lines` rows of x [rows, k] from `row` on, kStep of k from `first` on. Zeros outside.
__device__ void fill(std::byte* to, const bf16* x, int lines, int row, int rows, int first, int k) {
  const std::uint32_t begin = shared_address(to);
  for (int i = static_cast<int>(threadIdx.x); i < lines * kStep; i += kThreads) {
    const int line = row + i / kStep, at = first + i % kStep;
    const std::uint32_t address = swizzled(Swizzle::b128, begin + static_cast<std::uint32_t>(2 * i));
    bf16& element = *reinterpret_cast<bf16*>(to + (address - begin));
    element.bits = line < rows && at < k ? x[line * k + at].bits : std::uint16_t{0};
  }
}

__global__ void multiply(const bf16* a, const bf16* b, float* c, int m, int n, int k) {
  TRIREME_DYNAMIC_SHARED(memory, 1024);
  std::byte *const tile_a = memory, *const tile_b = memory + kBytesA;
  const int thread = static_cast<int>(threadIdx.x);
  const int row = static_cast<int>(blockIdx.y) * kM, column = static_cast<int>(blockIdx.x) * kN;
  float sums[kN / 2] = {};
  for (int first = 0; first < k; first += kStep) {
    fill(tile_a, a, kM, row, m, first, k);
    fill(tile_b, b, kN, column, n, first, k);
    fence_async_proxy();
    sync_threads();
    wgmma_fence();
    for (std::uint32_t i = 0; i < kStep; i += 16)
      wgmma_m64k16<bf16, kN>(sums, descriptor(shared_address(tile_a) + 2 * i),
                             descriptor(shared_address(tile_b) + 2 * i), true);
    wgmma_commit();
    wgmma_wait<0>();  // also: nothing reads the operands any more
    wgmma_hold<kN / 2>(sums);
  }
  for (int i = 0; i < kN / 2; i += 2) {
    const int line = row + row_of(thread, i), at = column + column_of(thread, i);
    if (line < m && at < n) store_vector(c + line * n + at, Pack<float, 2>{{sums[i], sums[i + 1]}});
  }
}

const Registered registered(answer("solution", {multiply, descriptor, place}));

}  // namespace
}  // namespace trireme::puzzles::wgmma
