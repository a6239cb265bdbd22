// The instructions of Hopper (sm_90a) under the emulator's names: clusters, mbarrier, TMA, wgmma, setmaxnreg. Included
// by cuda/device/nvcc.h, which describes the rules.
// Read next: the PTX ISA manual, "Asynchronous warpgroup level matrix instructions" and "Tensor copy".
#pragma once

#include <cuda.h>

#include <cstdint>
#include <type_traits>

#include "cuda/device/types.h"

namespace trireme::cuda {

using TensorMap = CUtensorMap;

// ---- clusters -------------------------------------------------------------------------------------------------------
__device__ __forceinline__ int cluster_rank() {
  std::uint32_t rank = 0;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}
__device__ __forceinline__ void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// ---- mbarrier -------------------------------------------------------------------------------------------------------
__device__ __forceinline__ void mbarrier_init(std::uint64_t* word, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(word)), "r"(arrivals) : "memory");
}
/// The block's threads need a barrier after it. TMA completes on the words, hence the proxy fence.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void mbarrier_arrive(std::uint64_t* word) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(word)) : "memory");
}
__device__ __forceinline__ void mbarrier_arrive_expect(std::uint64_t* word, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(word)), "r"(bytes)
               : "memory");
}
/// Orders what the thread has read before, also by wgmma that it has waited for. It does not make what the thread wrote
/// visible to the other block: with release.cluster the thread would wait for all its stores (MEMBAR.ALL.GPU).
__device__ __forceinline__ void mbarrier_arrive_at(std::uint64_t* word, int rank) {
  asm volatile(
      "{\n.reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(shared_address(word)),
      "r"(rank)
      : "memory");
}
/// try_wait itself suspends the thread for a while, so this is not a busy loop.
__device__ __forceinline__ void mbarrier_wait(std::uint64_t* word, std::uint32_t parity) {
  std::uint32_t done = 0;
  while (done == 0)
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.b32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(shared_address(word)), "r"(parity)
        : "memory");
}
__device__ __forceinline__ void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- TMA ------------------------------------------------------------------------------------------------------------
__device__ __forceinline__ void tma_prefetch(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
__device__ __forceinline__ void tma_load_2d(void* to, const TensorMap& map, int x, int y, std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
          shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(x), "r"(y)
      : "memory");
}
__device__ __forceinline__ void tma_load_3d(void* to, const TensorMap& map, int x, int y, int z,
                                            std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
      "[%2];" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z)
      : "memory");
}
__device__ __forceinline__ void tma_load_3d_multicast(void* to, const TensorMap& map, int x, int y, int z,
                                                      std::uint64_t* barrier, std::uint32_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "h"(static_cast<std::uint16_t>(blocks))
      : "memory");
}
__device__ __forceinline__ void tma_load_4d(void* to, const TensorMap& map, int x, int y, int z, int w,
                                            std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}
__device__ __forceinline__ void tma_store_2d(const TensorMap& map, const void* from, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map),
               "r"(shared_address(from)), "r"(x), "r"(y)
               : "memory");
}
__device__ __forceinline__ void tma_store_3d(const TensorMap& map, const void* from, int x, int y, int z) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&map),
               "r"(shared_address(from)), "r"(x), "r"(y), "r"(z)
               : "memory");
}
__device__ __forceinline__ void tma_store_4d(const TensorMap& map, const void* from, int x, int y, int z, int w) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(&map),
               "r"(shared_address(from)), "r"(x), "r"(y), "r"(z), "r"(w)
               : "memory");
}
__device__ __forceinline__ void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void tma_store_wait() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

// ---- registers and matrices of a warp -------------------------------------------------------------------------------
template <int N>
__device__ __forceinline__ void set_max_registers_up() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
__device__ __forceinline__ void set_max_registers_down() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
__device__ __forceinline__ void stmatrix_x4(const std::uint32_t* r, void* row) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)), "r"(r[0]),
               "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

// ---- wgmma ----------------------------------------------------------------------------------------------------------
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int Newest>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Newest) : "memory");
}

/// Emits no instruction: tells the compiler that the accumulators change here, so it cannot read them before the wait.
template <int Count>
__device__ __forceinline__ void wgmma_hold(float* d) {
  _Pragma("unroll") for (int i = 0; i < Count; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// An instruction of width N names N / 2 accumulators: operands 0 to N / 2 - 1. These macros build their list in tens,
// and the operands in eights.
#define TRIREME_TEN(t) "%" t "0, %" t "1, %" t "2, %" t "3, %" t "4, %" t "5, %" t "6, %" t "7, %" t "8, %" t "9"
#define TRIREME_SUMS_N16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define TRIREME_SUMS_N32 TRIREME_TEN("") ", %10, %11, %12, %13, %14, %15"
#define TRIREME_SUMS_30 TRIREME_TEN("") ", " TRIREME_TEN("1") ", " TRIREME_TEN("2")
#define TRIREME_SUMS_N64 TRIREME_SUMS_30 ", %30, %31"
#define TRIREME_SUMS_60 TRIREME_SUMS_30 ", " TRIREME_TEN("3") ", " TRIREME_TEN("4") ", " TRIREME_TEN("5")
#define TRIREME_SUMS_N128 TRIREME_SUMS_60 ", %60, %61, %62, %63"
#define TRIREME_SUMS_90 TRIREME_SUMS_60 ", " TRIREME_TEN("6") ", " TRIREME_TEN("7") ", " TRIREME_TEN("8")
#define TRIREME_SUMS_N192 TRIREME_SUMS_90 ", %90, %91, %92, %93, %94, %95"
#define TRIREME_SUMS_120 TRIREME_SUMS_90 ", " TRIREME_TEN("9") ", " TRIREME_TEN("10") ", " TRIREME_TEN("11")
#define TRIREME_SUMS_N256 TRIREME_SUMS_120 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define TRIREME_IO_8(i)                                                                                 \
  "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3]), "+f"(d[(i) + 4]), "+f"(d[(i) + 5]), \
      "+f"(d[(i) + 6]), "+f"(d[(i) + 7])
#define TRIREME_IO_16(i) TRIREME_IO_8(i), TRIREME_IO_8((i) + 8)
#define TRIREME_IO_32(i) TRIREME_IO_16(i), TRIREME_IO_16((i) + 16)
#define TRIREME_IO_64(i) TRIREME_IO_32(i), TRIREME_IO_32((i) + 32)
#define TRIREME_IO_96(i) TRIREME_IO_64(i), TRIREME_IO_32((i) + 64)
#define TRIREME_IO_128(i) TRIREME_IO_64(i), TRIREME_IO_64((i) + 64)

#define TRIREME_IO_N16 TRIREME_IO_8(0)
#define TRIREME_IO_N32 TRIREME_IO_16(0)
#define TRIREME_IO_N64 TRIREME_IO_32(0)
#define TRIREME_IO_N128 TRIREME_IO_64(0)
#define TRIREME_IO_N192 TRIREME_IO_96(0)
#define TRIREME_IO_N256 TRIREME_IO_128(0)

// The instruction for one N and type; the numbers are those of the operands after the sums.
#define TRIREME_WGMMA(n, type, a, b, p, ta, tb)                                                                    \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" p ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type \
               "." type " {" TRIREME_SUMS_N##n "}, %" a ", %" b ", p, 1, 1, %" ta ", %" tb ";\n}"                  \
               : TRIREME_IO_N##n                                                                                   \
               : "l"(a_descriptor), "l"(b_descriptor), "r"(add), "n"(kTransposeA), "n"(kTransposeB))
#define TRIREME_WGMMA_REGISTERS(n, type, a0, a1, a2, a3, b, p, tb)                                                     \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" p ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type     \
               "." type " {" TRIREME_SUMS_N##n "}, {%" a0 ", %" a1 ", %" a2 ", %" a3 "}, %" b ", p, 1, 1, %" tb ";\n}" \
               : TRIREME_IO_N##n                                                                                       \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_descriptor), "r"(add), "n"(kTransposeB))
#define TRIREME_FOR_TYPE(instruction, n, ...) \
  if constexpr (N == n) {                     \
    if constexpr (std::is_same_v<T, bf16>)    \
      instruction(n, "bf16", __VA_ARGS__);    \
    else                                      \
      instruction(n, "f16", __VA_ARGS__);     \
  }

template <int N>
inline constexpr bool kWgmmaWidth = N == 16 || N == 32 || N == 64 || N == 128 || N == 192 || N == 256;

/// d [N / 2 sums of a thread] = a b, or += with `accumulate`; a [64, 16] and b [16, N] by descriptors.
template <class T, int N, bool kTransposeA = false, bool kTransposeB = false>
__device__ __forceinline__ void wgmma_m64k16(float* d, std::uint64_t a_descriptor, std::uint64_t b_descriptor,
                                             bool accumulate) {
  static_assert(kWgmmaWidth<N>, "this width has no wrapper yet");
  const int add = accumulate ? 1 : 0;
  TRIREME_FOR_TYPE(TRIREME_WGMMA, 16, "8", "9", "10", "11", "12")
  TRIREME_FOR_TYPE(TRIREME_WGMMA, 32, "16", "17", "18", "19", "20")
  TRIREME_FOR_TYPE(TRIREME_WGMMA, 64, "32", "33", "34", "35", "36")
  TRIREME_FOR_TYPE(TRIREME_WGMMA, 128, "64", "65", "66", "67", "68")
  TRIREME_FOR_TYPE(TRIREME_WGMMA, 192, "96", "97", "98", "99", "100")
  TRIREME_FOR_TYPE(TRIREME_WGMMA, 256, "128", "129", "130", "131", "132")
}

/// The same with a from registers: the fragment of m16n8k16, warp w holding rows 16 w to 16 w + 15.
template <class T, int N, bool kTransposeB = false>
__device__ __forceinline__ void wgmma_m64k16_registers(float* d, const std::uint32_t* a, std::uint64_t b_descriptor,
                                                       bool accumulate) {
  static_assert(kWgmmaWidth<N>, "this width has no wrapper yet");
  const int add = accumulate ? 1 : 0;
  TRIREME_FOR_TYPE(TRIREME_WGMMA_REGISTERS, 16, "8", "9", "10", "11", "12", "13", "14")
  TRIREME_FOR_TYPE(TRIREME_WGMMA_REGISTERS, 32, "16", "17", "18", "19", "20", "21", "22")
  TRIREME_FOR_TYPE(TRIREME_WGMMA_REGISTERS, 64, "32", "33", "34", "35", "36", "37", "38")
  TRIREME_FOR_TYPE(TRIREME_WGMMA_REGISTERS, 128, "64", "65", "66", "67", "68", "69", "70")
  TRIREME_FOR_TYPE(TRIREME_WGMMA_REGISTERS, 192, "96", "97", "98", "99", "100", "101", "102")
  TRIREME_FOR_TYPE(TRIREME_WGMMA_REGISTERS, 256, "128", "129", "130", "131", "132", "133", "134")
}

}  // namespace trireme::cuda
