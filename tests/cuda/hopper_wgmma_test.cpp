// wgmma on its own, in every width that has a wrapper: A K-major, M-major and from registers; B K-major and N-major;
// every offset in K that the kernels use. The operands are written by plain stores, so TMA takes no part.
//
// Two operands of ones and zeros copy the other one into the result: A[m, k] = (k % 16 == m % 16) makes D[m, n] the
// element B[m % 16, n] of a step. If the elements of B are their row, or their column, the result tells what was read.
// Read next: tests/cuda/hopper_warp_test.cpp.
#include <doctest/doctest.h>

#include <vector>

#include "cuda/kernels/gemm_tiles_sm90.h"
#include "tests/cuda/hopper_support.h"

using namespace trireme;
using namespace trireme::cuda;
using namespace cuda_test;

namespace hopper_wgmma_test {
namespace {

constexpr int kM = 64, kK = 64;
enum class Side { k_major, other_major, registers };

/// Byte of element (r, k) of an operand in shared memory, before the swizzle: rows of 128 bytes.
__device__ __forceinline__ std::uint32_t place(bool k_major, int r, int k) {
  return static_cast<std::uint32_t>(k_major ? 128 * r + 2 * k : r / 64 * sm90::kChunkBytes + 128 * k + r % 64 * 2);
}

/// Copies an operand [rows, 64], K fastest.
template <class T>
__device__ __forceinline__ void write_operand(std::byte* memory, const T* from, int rows, bool k_major) {
  for (int i = static_cast<int>(threadIdx.x); i < rows * kK; i += 128) {
    const std::uint32_t at = shared_address(memory) + place(k_major, i / kK, i % kK);
    *reinterpret_cast<T*>(memory + (swizzled(Swizzle::b128, at) - shared_address(memory))) = from[i];
  }
}

/// d [64, N] = a [64, 64] times b [N, 64], over K from `begin` to `end`, in one warp group.
template <class T, int N, Side A, bool BKMajor>
__global__ void product(const T* a, const T* b, int begin, int end, float* d) {
#if TRIREME_HOPPER_CODE
  TRIREME_DYNAMIC_SHARED(memory, 1024);
  std::byte* const tile_b = memory + sm90::kChunkBytes;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  write_operand(memory, a, kM, A == Side::k_major);
  write_operand(tile_b, b, N, BKMajor);
  fence_async_proxy();
  sync_threads();
  float sums[N / 2];
  for (int i = 0; i < N / 2; ++i) sums[i] = -1.0F;  // the first product must overwrite them
  for (int k = begin; k < end; k += 16) {
    std::uint32_t fragment[4];
    for (int i = 0; i < 4; ++i) {
      const T* const pair = a + (16 * warp + lane / 4 + 8 * (i % 2)) * kK + k + 2 * (lane % 4) + 8 * (i / 2);
      fragment[i] = pair[0].bits | static_cast<std::uint32_t>(pair[1].bits) << 16;
    }
    wgmma_fence();
    if constexpr (A == Side::registers)
      wgmma_m64k16_registers<T, N, !BKMajor>(sums, fragment, sm90::descriptor<BKMajor>(tile_b, k), k > begin);
    else
      wgmma_m64k16<T, N, A != Side::k_major, !BKMajor>(sums, sm90::descriptor<A == Side::k_major>(memory, k),
                                                       sm90::descriptor<BKMajor>(tile_b, k), k > begin);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold<N / 2>(sums);
  }
  for (int i = 0; i < N / 2; ++i)
    d[(16 * warp + lane / 4 + 8 * (i / 2 % 2)) * N + 8 * (i / 4) + 2 * (lane % 4) + i % 2] = sums[i];
#endif
}

/// An operand's elements, K fastest: the same code for all widths and types, because nvcc is slow to compile copies of
/// it.
using Values = std::vector<float>;
/// Runs one instance of the kernel: a [64, 64], b [N, 64], K from `begin` to `end`, d [64, N].
using Run = void (*)(const Values& a, const Values& b, int begin, int end, Buffer<float>& d);

template <class T, int N, Side A, bool BKMajor>
void run(const Values& a, const Values& b, int begin, int end, Buffer<float>& d) {
  Buffer<T> in_a(a.size()), in_b(b.size());
  for (std::size_t i = 0; i < a.size(); ++i) in_a.set(i, T(a[i]));
  for (std::size_t i = 0; i < b.size(); ++i) in_b.set(i, T(b[i]));
  const int shared = sm90::kChunkBytes + (N < 64 ? 1 : N / 64) * sm90::kChunkBytes;
  launch({"product", {1, 1, 1}, {128, 1, 1}, static_cast<std::size_t>(shared)}, product<T, N, A, BKMajor>, in_a.data(),
         in_b.data(), begin, end, d.data());
}

/// Values by row and k: m or n, and k.
using Value = int (*)(int row, int k);

struct Trial {
  std::string name;
  int n;
  Run run;

  static Values values(int rows, Value value) {
    Values all;
    for (int i = 0; i < rows * kK; ++i) all.push_back(static_cast<float>(value(i / kK, i % kK)));
    return all;
  }
  /// Runs K from `begin` to `end`. `reads`: what the values of the result are, for the report.
  void check(Value value_a, Value value_b, int begin, int end, const std::string& reads) const {
    const Values a = values(kM, value_a), b = values(n, value_b);
    const auto width = static_cast<std::size_t>(n);
    Buffer<float> d(kM * width);
    run(a, b, begin, end, d);
    const auto expected = [&](std::size_t i) {
      float sum = 0;
      for (std::size_t k = static_cast<std::size_t>(begin); k < static_cast<std::size_t>(end); ++k)
        sum += a[i / width * kK + k] * b[i % width * kK + k];
      return static_cast<double>(sum);
    };
    compare({fmt::format("{}, K {} to {}, {}", name, begin, end, reads), d.size(),
             [&](std::size_t i) { return d.at(i); }, expected,
             [&](std::size_t i) { return fmt::format("D[{}, {}]", i / width, i % width); },
             [&](double value) { return value == 0 ? "nothing" : fmt::format("{} {}", reads, value - 1); }});
  }
};

void check_width(const char* name, int n, Run run) {
  const Trial trial{name, n, run};
  const Value copies = [](int r, int k) { return r % 16 == k % 16 ? 1 : 0; };
  const Value its_row = [](int r, int) { return r + 1; }, its_k = [](int, int k) { return k + 1; };
  for (int k = 0; k < kK; k += 16) {  // one step of K at each offset, then all of them
    trial.check(copies, its_k, k, k + 16, "B, with k =");
    trial.check(copies, its_row, k, k + 16, "B, with n =");
    trial.check(its_k, copies, k, k + 16, "A, with k =");
    trial.check(its_row, copies, k, k + 16, "A, with m =");
  }
  const Value mixed_a = [](int m, int k) { return (5 * m + 3 * k) % 7 - 3; };
  const Value mixed_b = [](int n_, int k) { return (3 * n_ + k) % 5 - 2; };
  trial.check(mixed_a, mixed_b, 0, kK, "sums of whole numbers, less 1:");
  trial.check(mixed_a, mixed_b, 16, 48, "sums of whole numbers, less 1:");
}

}  // namespace

#define TRIREME_WGMMA_CASE(type, n, a, b, b_k_major)                                                      \
  TEST_CASE("hopper: wgmma " #type " N=" #n ", A " #a ", B " #b) {                                        \
    cuda_test::under_schedule(                                                                            \
        2, [] { check_width(#type " N=" #n ", A " #a ", B " #b, n, run<type, n, Side::a, b_k_major>); }); \
  }
#define TRIREME_WGMMA_A(type, n, b, b_k_major)           \
  TRIREME_WGMMA_CASE(type, n, k_major, b, b_k_major)     \
  TRIREME_WGMMA_CASE(type, n, other_major, b, b_k_major) \
  TRIREME_WGMMA_CASE(type, n, registers, b, b_k_major)

TRIREME_WGMMA_A(bf16, 16, k_major, true)
TRIREME_WGMMA_A(bf16, 32, k_major, true)
TRIREME_WGMMA_A(bf16, 64, k_major, true)
TRIREME_WGMMA_A(bf16, 128, k_major, true)
TRIREME_WGMMA_A(bf16, 192, k_major, true)
TRIREME_WGMMA_A(bf16, 256, k_major, true)
// A row of 128 bytes holds 64 of N: narrower tiles of an N-major operand would need another swizzle.
TRIREME_WGMMA_A(bf16, 64, n_major, false)
TRIREME_WGMMA_A(bf16, 128, n_major, false)
TRIREME_WGMMA_A(bf16, 192, n_major, false)
TRIREME_WGMMA_A(bf16, 256, n_major, false)
// The other type: the instructions differ in one word.
TRIREME_WGMMA_CASE(f16, 16, k_major, k_major, true)
TRIREME_WGMMA_CASE(f16, 32, k_major, k_major, true)
TRIREME_WGMMA_CASE(f16, 64, other_major, n_major, false)
TRIREME_WGMMA_CASE(f16, 128, registers, n_major, false)
TRIREME_WGMMA_CASE(f16, 192, k_major, k_major, true)
TRIREME_WGMMA_CASE(f16, 256, registers, n_major, false)

}  // namespace hopper_wgmma_test
