// The names of cuda/emu/device.h on a real GPU: one function per PTX instruction, nothing else. Kept small, because
// inline assembly is the only part that the emulator cannot check.
// Read next: the PTX ISA manual, chapters "Warp level matrix instructions" and "Asynchronous copies".
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cuda/device/types.h"

#define TRIREME_UNROLL _Pragma("unroll")
#define TRIREME_NO_UNROLL _Pragma("unroll 1")
#define TRIREME_SHARED(type, name, count) __shared__ __align__(16) type name[count]
#define TRIREME_DYNAMIC_SHARED(name, alignment) \
  extern __shared__ __align__(alignment)        \
  unsigned char name##_storage[];               \
  std::byte* const name = reinterpret_cast<std::byte*>(name##_storage)

namespace trireme::cuda {

using Stream = cudaStream_t;

// ---- threads --------------------------------------------------------------------------------------------------------
__device__ __forceinline__ void sync_threads() { __syncthreads(); }
__device__ __forceinline__ void sync_warp(std::uint32_t mask = ~0U) { __syncwarp(mask); }
__device__ __forceinline__ void barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
template <class T>
__device__ __forceinline__ T shuffle_xor(T value, int bits, std::uint32_t mask = ~0U) {
  return __shfl_xor_sync(mask, value, bits);
}
template <class T>
__device__ __forceinline__ T shuffle(T value, int from, std::uint32_t mask = ~0U) {
  return __shfl_sync(mask, value, from);
}
template <class T>
__device__ __forceinline__ T shuffle_down(T value, int lanes, std::uint32_t mask = ~0U) {
  return __shfl_down_sync(mask, value, static_cast<unsigned>(lanes));
}
__device__ __forceinline__ std::uint32_t ballot(bool predicate, std::uint32_t mask = ~0U) {
  return __ballot_sync(mask, predicate);
}

// ---- arithmetic -----------------------------------------------------------------------------------------------------
__host__ __device__ __forceinline__ float exp2_fast(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}
__device__ __forceinline__ float reciprocal_sqrt(float x) { return rsqrtf(x); }
/// 1 / x within 1 ulp, and 0 above 2^126. A division has more instructions, and a branch for subnormal numbers.
__host__ __device__ __forceinline__ float reciprocal_fast(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1.0F / x;
#endif
}
__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(bf16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }
__device__ __forceinline__ float to_float(f16 x) { return __half2float(__ushort_as_half(x.bits)); }
/// Two 16-bit values as one register, the first in the low half, by one instruction (F2FP). A conversion of one value
/// (cvt to bf16, not bf16x2) becomes F2F, which shares a pipeline (XU) with exponentials and reciprocals.
template <class T>
__device__ __forceinline__ std::uint32_t pack_pair(float low, float high) {
  std::uint32_t pair;
  if constexpr (std::is_same_v<T, bf16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
/// Emits no instruction. The compiler must compute again what it derived from the register, and so keeps only the pair.
__device__ __forceinline__ void compute_again(std::uint32_t& pair) { asm volatile("" : "+r"(pair)); }
/// The halves of such a register.
template <class T>
__device__ __forceinline__ float low_half(std::uint32_t pair) {
  if constexpr (std::is_same_v<T, bf16>) return __uint_as_float(pair << 16);
  return __half2float(__ushort_as_half(static_cast<std::uint16_t>(pair)));
}
template <class T>
__device__ __forceinline__ float high_half(std::uint32_t pair) {
  if constexpr (std::is_same_v<T, bf16>) return __uint_as_float(pair & 0xffff0000U);
  return __half2float(__ushort_as_half(static_cast<std::uint16_t>(pair >> 16)));
}
template <class T>
__device__ __forceinline__ T from_float(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    T y;
    y.bits = static_cast<std::uint16_t>(pack_pair<T>(x, 0.0F));
    return y;
  }
}

// ---- global memory --------------------------------------------------------------------------------------------------
template <class V, class T>
__device__ __forceinline__ V load_vector(const T* from) {
  return *reinterpret_cast<const V*>(from);
}
template <class V, class T>
__device__ __forceinline__ void store_vector(T* to, const V& value) {
  if constexpr (sizeof(V) == 8)  // one store: nvcc may split that of a struct into those of its members
    *reinterpret_cast<unsigned long long*>(to) = std::bit_cast<unsigned long long>(value);
  else if constexpr (sizeof(V) == 16)
    *reinterpret_cast<unsigned __int128*>(to) = std::bit_cast<unsigned __int128>(value);
  else
    *reinterpret_cast<V*>(to) = value;
}
/// Requests the line of 128 bytes that holds `from`, into L2.
__device__ __forceinline__ void prefetch_l2(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from) : "memory");
}

// ---- asynchronous copies --------------------------------------------------------------------------------------------
__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}
__device__ __forceinline__ void cp_async_16(void* to, const void* from, int valid = 16) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(valid)
               : "memory");
}
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// ---- matrices of a warp ---------------------------------------------------------------------------------------------
__device__ __forceinline__ void ldmatrix_x4(std::uint32_t* r, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_transposed(std::uint32_t* r, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
template <class T>
__device__ __forceinline__ void mma_m16n8k16(float* d, const std::uint32_t* a, const std::uint32_t* b) {
  if constexpr (std::is_same_v<T, bf16>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}  // namespace trireme::cuda

#include "cuda/device/nvcc_hopper.h"
#include "cuda/device/nvcc_launch.h"
