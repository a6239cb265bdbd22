// Puzzle 14: wrong kernels, most of which give the right product, each with a part of the message that it must get. Do
// not read this before your own answer: what is wrong shows what is right.
#include "examples/puzzles/14_wgmma/puzzle.h"

namespace trireme::puzzles::wgmma {
namespace {

using namespace cuda;

using Kernel = void(const bf16*, const bf16*, float*, int, int, int);

__host__ __device__ std::uint64_t descriptor(std::uint32_t address) {
  return ((address >> 4) & 0x3fffU) | std::uint64_t{1024 >> 4} << 32 | std::uint64_t{1} << 62;
}
__host__ __device__ int row_of(int thread, int i) { return 16 * (thread / 32) + thread % 32 / 4 + 8 * (i / 2 % 2); }
__host__ __device__ int column_of(int thread, int i) { return 8 * (i / 4) + 2 * (thread % 4) + i % 2; }

Answer wrong(std::string name, Kernel* multiply, std::string expected) {
  return answer(std::move(name),
                {multiply, descriptor, [](int thread, int i) { return row_of(thread, i) * kN + column_of(thread, i); }},
                std::move(expected));
}

/// What is wrong. Everything else is right.
enum class Bug : std::uint8_t {
  none,
  no_barrier,
  no_proxy_fence,
  no_fence,
  no_wait,
  no_commit,
  scaled_in_flight,
  filled_in_flight,
  no_swizzle,
  beyond_k,
  last_rows_not_filled,
  same_descriptors,
  by_columns,
  two_barriers,
  single_stores,
  rows_swapped,
};

template <Bug kBug>
__device__ void fill(std::byte* to, const bf16* x, int lines, int row, int rows, int first, int k) {
  const std::uint32_t begin = shared_address(to);
  for (int i = static_cast<int>(threadIdx.x); i < lines * kStep; i += kThreads) {
    const int r = kBug == Bug::by_columns ? i % lines : i / kStep, l = kBug == Bug::by_columns ? i / lines : i % kStep;
    const int line = row + r, at = first + l;
    if (kBug == Bug::last_rows_not_filled && line >= rows) continue;
    const std::uint32_t linear = begin + static_cast<std::uint32_t>(2 * (r * kStep + l));
    const std::uint32_t address = kBug == Bug::no_swizzle ? linear : swizzled(Swizzle::b128, linear);
    bf16& element = *reinterpret_cast<bf16*>(to + (address - begin));
    if (kBug == Bug::beyond_k && line < rows) {
      const std::uint16_t bits = x[line * k + at].bits;  // if it is outside, the next row's, and not used
      element.bits = at < k ? bits : std::uint16_t{0};
    } else {
      element.bits = line < rows && at < k ? x[line * k + at].bits : std::uint16_t{0};
    }
  }
}

template <Bug kBug>
__global__ void multiply(const bf16* a, const bf16* b, float* c, int m, int n, int k) {
  TRIREME_DYNAMIC_SHARED(memory, 1024);
  std::byte *const tile_a = memory, *const tile_b = memory + kBytesA;
  const int thread = static_cast<int>(threadIdx.x);
  const int row = static_cast<int>(blockIdx.y) * kM, column = static_cast<int>(blockIdx.x) * kN;
  float sums[kN / 2] = {};
  for (int first = 0; first < k; first += kStep) {
    fill<kBug>(tile_a, a, kM, row, m, first, k);
    fill<kBug>(tile_b, b, kN, column, n, first, k);
    if (kBug != Bug::no_proxy_fence) fence_async_proxy();
    if (kBug != Bug::no_barrier) sync_threads();
    if (kBug != Bug::no_fence) wgmma_fence();
    for (std::uint32_t i = 0; i < kStep; i += 16) {
      const std::uint32_t of_a = kBug == Bug::same_descriptors ? 0 : 2 * i;
      wgmma_m64k16<bf16, kN>(sums, descriptor(shared_address(tile_a) + of_a),
                             descriptor(shared_address(tile_b) + 2 * i), true);
    }
    if (kBug != Bug::no_commit) wgmma_commit();
    if (kBug == Bug::scaled_in_flight) sums[0] += 0.0F;
    if (kBug == Bug::filled_in_flight && first + kStep >= k) fill<kBug>(tile_a, a, kM, row, m, first, k);
    if (kBug != Bug::no_wait) wgmma_wait<0>();
    wgmma_hold<kN / 2>(sums);
    if (kBug == Bug::two_barriers) sync_threads();
  }
  for (int i = 0; i < kN / 2; i += 2) {
    const int line = row + row_of(thread, kBug == Bug::rows_swapped ? i ^ 2 : i), at = column + column_of(thread, i);
    if (line >= m || at >= n) continue;
    if (kBug == Bug::single_stores) {
      c[line * n + at] = sums[i];
      c[line * n + at + 1] = sums[i + 1];
    } else {
      store_vector(c + line * n + at, Pack<float, 2>{{sums[i], sums[i + 1]}});
    }
  }
}

/// Some threads multiply before others have filled their part.
const Registered a1(wrong("no barrier", multiply<Bug::no_barrier>, "nothing orders the two"));
/// The threads have met, but wgmma reads through another proxy.
const Registered a2(wrong("no proxy fence", multiply<Bug::no_proxy_fence>, "no proxy fence lies between the two"));
const Registered a3(wrong("no wgmma fence", multiply<Bug::no_fence>, "no wgmma.fence"));
const Registered a4(wrong("no wait", multiply<Bug::no_wait>, "which is in flight; wait for its group first"));
/// A wait covers only products that were committed.
const Registered a15(wrong("no commit", multiply<Bug::no_commit>, "which is in flight"));
const Registered a5(wrong("sums used in flight", multiply<Bug::scaled_in_flight>, "which is in flight"));
/// The operand is overwritten, with the same values, while products may read it.
const Registered a6(wrong("an operand filled in flight", multiply<Bug::filled_in_flight>, "reads by wgmma"));
const Registered a7(wrong("no swizzle", multiply<Bug::no_swizzle>, "c: "));
const Registered a8(wrong("reads a beyond k", multiply<Bug::beyond_k>, "outside of a [1]"));
/// Rows that are not stored are multiplied, too.
const Registered a9(wrong("rows outside are not filled", multiply<Bug::last_rows_not_filled>,
                          "which nobody wrote before"));
/// A is at k = 0 in every product.
const Registered a10(wrong("the same 16 of k", multiply<Bug::same_descriptors>, "c: "));
const Registered a11(wrong("filled by columns", multiply<Bug::by_columns>, "without bank conflicts"));
const Registered a12(wrong("a barrier after the wait", multiply<Bug::two_barriers>,
                           "barriers of a block: 4, and the budget is 2"));
/// One sum at a time: each store fills half of its sectors.
const Registered a13(wrong("one sum at a time", multiply<Bug::single_stores>, "sectors of 32 bytes, where"));
const Registered a14(wrong("rows of a thread swapped", multiply<Bug::rows_swapped>, "c: "));

}  // namespace
}  // namespace trireme::puzzles::wgmma
