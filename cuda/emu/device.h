// What a kernel calls under emulation: the keywords of CUDA C++ and one function per PTX instruction. The same names
// with inline PTX are in cuda/device/nvcc.h; kernels include cuda/device/device.h, which selects one of the two.
//
// Callers never pass `site`: it defaults to the line of the call. It serves for reports, and to detect lanes of a warp
// that are not at the same instruction.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "cuda/device/types.h"
#include "cuda/emu/async.h"
#include "cuda/emu/cluster.h"
#include "cuda/emu/launch.h"
#include "cuda/emu/matrix.h"

#if defined(__SANITIZE_THREAD__)
#define __global__ __attribute__((flatten))  // race build: one function a kernel, so that every access has its lines
#else
#define __global__
#endif
#define __device__
#define __host__
#define __forceinline__ inline
#define __grid_constant__
#define TRIREME_UNROLL
#define TRIREME_NO_UNROLL

#define threadIdx (::trireme::cuda::emu::running_fiber->thread)
#define blockIdx (::trireme::cuda::emu::running_block->index())
#define blockDim (::trireme::cuda::emu::running_block->shape().block)
#define gridDim (::trireme::cuda::emu::running_block->shape().grid)

/// Shared memory comes only from these two: an array of `count` elements; and the bytes that the launch asked for. A
/// static variable identifies each declaration; every instantiation of a template has its own.
#define TRIREME_SHARED(type, name, count)                                                                      \
  auto* const name = ::trireme::cuda::emu::shared_array<type>(#name,                                           \
                                                              [] {                                             \
                                                                static const char declaration = 0;             \
                                                                return static_cast<const void*>(&declaration); \
                                                              }(),                                             \
                                                              count, {__FILE__, __LINE__})
#define TRIREME_DYNAMIC_SHARED(name, alignment) \
  std::byte* const name = ::trireme::cuda::emu::running_block->dynamic_shared(#name, alignment, {__FILE__, __LINE__})

namespace trireme::cuda::emu {

template <class T>
T* shared_array(const char* name, const void* declaration, std::size_t count, Site site) {
  constexpr std::size_t kAlignment = alignof(T) < 16 ? 16 : alignof(T);
  return reinterpret_cast<T*>(
      running_block->static_shared({name, sizeof(T), declaration}, sizeof(T) * count, kAlignment, site));
}

}  // namespace trireme::cuda::emu

namespace trireme::cuda {

using emu::Site;
using emu::TensorMap;
struct StreamTag;
using Stream = StreamTag*;  ///< under emulation launches are synchronous, and streams have no effect

// ---- threads --------------------------------------------------------------------------------------------------------
inline void sync_threads(Site site = Site::here()) {
  emu::running_block->barrier(0, emu::running_block->threads(), true, site);
}
inline void sync_warp(std::uint32_t mask = ~0U, Site site = Site::here()) { emu::running_block->sync_warp(mask, site); }
inline void barrier_sync(int id, int threads, Site site = Site::here()) {
  emu::running_block->barrier(id, threads, true, site);
}
inline void barrier_arrive(int id, int threads, Site site = Site::here()) {
  emu::running_block->barrier(id, threads, false, site);
}
/// The block's number in its cluster.
inline int cluster_rank() { return emu::running_block->rank(); }
/// All threads of all blocks of the cluster wait for each other. What they wrote to shared memory before is visible
/// after.
inline void sync_cluster(Site site = Site::here()) { emu::running_block->cluster().barrier(site); }
template <int N>
void set_max_registers_up(Site site = Site::here()) {
  emu::running_block->set_max_registers(N, true, site);
}
template <int N>
void set_max_registers_down(Site site = Site::here()) {
  emu::running_block->set_max_registers(N, false, site);
}

namespace emu {
/// Every lane of `mask` gets the value of lane source(lane), or its own if that lane is out of range.
template <class T, class Source>
T exchange(std::uint32_t mask, T value, const char* what, Site site, Source&& source) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  struct Argument {
    T in, out;
    int from;
  } mine{value, value, source(running_fiber->index % 32)};
  running_block->meet_warp(mask, what, site, &mine, [&](void* const* all) {
    for (int lane = 0; lane < 32; ++lane) {
      if (((mask >> lane) & 1U) == 0) continue;
      auto& self = *static_cast<Argument*>(all[lane]);
      if (self.from < 0 || self.from > 31) continue;
      if (((mask >> self.from) & 1U) == 0) running_block->fault(site, "a shuffle reads a lane outside its mask");
      self.out = static_cast<const Argument*>(all[self.from])->in;
    }
  });
  return mine.out;
}
}  // namespace emu

template <class T>
T shuffle_xor(T value, int bits, std::uint32_t mask = ~0U, Site site = Site::here()) {
  return emu::exchange(mask, value, "shfl.xor", site, [bits](int lane) { return lane ^ bits; });
}
template <class T>
T shuffle(T value, int from, std::uint32_t mask = ~0U, Site site = Site::here()) {
  return emu::exchange(mask, value, "shfl.idx", site, [from](int) { return from & 31; });
}
template <class T>
T shuffle_down(T value, int lanes, std::uint32_t mask = ~0U, Site site = Site::here()) {
  return emu::exchange(mask, value, "shfl.down", site, [lanes](int lane) { return lane + lanes; });
}
/// One bit for each lane of `mask` whose `predicate` holds.
inline std::uint32_t ballot(bool predicate, std::uint32_t mask = ~0U, Site site = Site::here()) {
  struct Argument {
    bool in;
    std::uint32_t out;
  } mine{predicate, 0};
  emu::running_block->meet_warp(mask, "vote.ballot", site, &mine, [&](void* const* all) {
    std::uint32_t bits = 0;
    for (int lane = 0; lane < 32; ++lane)
      if (((mask >> lane) & 1U) != 0 && static_cast<Argument*>(all[lane])->in) bits |= 1U << lane;
    for (int lane = 0; lane < 32; ++lane)
      if (((mask >> lane) & 1U) != 0) static_cast<Argument*>(all[lane])->out = bits;
  });
  return mine.out;
}

// ---- arithmetic -----------------------------------------------------------------------------------------------------
inline float exp2_fast(float x) { return std::exp2(x); }
inline float reciprocal_fast(float x) { return 1.0F / x; }
inline float reciprocal_sqrt(float x) { return 1.0F / std::sqrt(x); }
template <class T>
float to_float(T x) {
  return static_cast<float>(x);
}
template <class T>
T from_float(float x) {
  return T(x);
}
/// Two 16-bit values as one register, the first in the low half.
template <class T>
std::uint32_t pack_pair(float low, float high) {
  return from_float<T>(low).bits | (std::uint32_t{from_float<T>(high).bits} << 16);
}
inline void compute_again(std::uint32_t&) {}
/// The halves of such a register.
template <class T>
float low_half(std::uint32_t pair) {
  return to_float(std::bit_cast<T>(static_cast<std::uint16_t>(pair)));
}
template <class T>
float high_half(std::uint32_t pair) {
  return to_float(std::bit_cast<T>(static_cast<std::uint16_t>(pair >> 16)));
}

// ---- global memory --------------------------------------------------------------------------------------------------
namespace emu {
/// Moves bytes by one instruction, which loads from memory or stores to it. In the race build it reports that access
/// once (race_hooks.cpp): the compiler might not mark a memcpy, or mark its parts.
#if defined(__SANITIZE_THREAD__)
void move(void* to, const void* from, std::size_t bytes, bool stores);
#else
inline void move(void* to, const void* from, std::size_t bytes, bool /*stores*/) { std::memcpy(to, from, bytes); }
#endif
}  // namespace emu

inline void prefetch_l2(const void* /*from*/) {}
/// A load of sizeof(V) bytes in one instruction: the address must be a multiple of that.
template <class V, class T>
V load_vector(const T* from, Site site = Site::here()) {
  if (reinterpret_cast<std::uintptr_t>(from) % sizeof(V) != 0)
    emu::running_block->fault(site, "a vector load from an address that is not a multiple of its size");
  V value;
  emu::move(&value, from, sizeof(V), false);
  return value;
}
template <class V, class T>
void store_vector(T* to, const V& value, Site site = Site::here()) {
  if (reinterpret_cast<std::uintptr_t>(to) % sizeof(V) != 0)
    emu::running_block->fault(site, "a vector store to an address that is not a multiple of its size");
  emu::move(to, &value, sizeof(V), true);
}

// ---- asynchronous copies --------------------------------------------------------------------------------------------
/// 16 bytes from global to shared memory, of which the first `valid` are read and the rest become zeros.
inline void cp_async_16(void* to, const void* from, int valid = 16, Site site = Site::here()) {
  emu::cp_async(to, from, 16, valid, site);
}
inline void cp_async_commit() { emu::running_fiber->copies.commit(); }
/// Waits until at most N of this thread's groups are in flight.
template <int N>
void cp_async_wait(Site site = Site::here()) {
  emu::running_fiber->site = site;
  emu::running_fiber->copies.wait(N);
  emu::running_block->give_way();
}

inline void mbarrier_init(std::uint64_t* word, int arrivals, Site site = Site::here()) {
  emu::mbarrier_init(word, arrivals, site);
}
inline void fence_mbarrier_init() { emu::running_block->publish_to_async_proxy(); }
inline void mbarrier_arrive(std::uint64_t* word, Site site = Site::here()) { emu::mbarrier_arrive(word, 0, site); }
inline void mbarrier_arrive_expect(std::uint64_t* word, int bytes, Site site = Site::here()) {
  emu::mbarrier_arrive(word, bytes, site);
}
/// One arrival at the same word in block `rank` of the cluster.
inline void mbarrier_arrive_at(std::uint64_t* word, int rank, Site site = Site::here()) {
  emu::mbarrier_arrive_at(word, rank, site);
}
/// Waits until the phase of this parity has ended (before the first phase, parity 1 counts as ended).
inline void mbarrier_wait(std::uint64_t* word, std::uint32_t parity, Site site = Site::here()) {
  emu::running_block->wait_mbarrier(word, parity, site);
}
/// Makes what threads wrote to shared memory visible to TMA and wgmma.
inline void fence_async_proxy() { emu::running_block->publish_to_async_proxy(); }

inline void tma_prefetch(const TensorMap&) {}
inline void tma_load_2d(void* to, const TensorMap& map, int x, int y, std::uint64_t* barrier,
                        Site site = Site::here()) {
  emu::tma_load(to, map, 2, {x, y, 0, 0}, barrier, site);
}
inline void tma_load_3d(void* to, const TensorMap& map, int x, int y, int z, std::uint64_t* barrier,
                        Site site = Site::here()) {
  emu::tma_load(to, map, 3, {x, y, z, 0}, barrier, site);
}
/// To the same place in each block of the cluster whose bit in `blocks` is set; reports to the same mbarrier there.
inline void tma_load_3d_multicast(void* to, const TensorMap& map, int x, int y, int z, std::uint64_t* barrier,
                                  std::uint32_t blocks, Site site = Site::here()) {
  emu::tma_load_multicast(to, map, 3, {x, y, z, 0}, barrier, blocks, site);
}
inline void tma_load_4d(void* to, const TensorMap& map, int x, int y, int z, int w, std::uint64_t* barrier,
                        Site site = Site::here()) {
  emu::tma_load(to, map, 4, {x, y, z, w}, barrier, site);
}
inline void tma_store_2d(const TensorMap& map, const void* from, int x, int y, Site site = Site::here()) {
  emu::tma_store(map, from, 2, {x, y, 0, 0}, site);
}
inline void tma_store_3d(const TensorMap& map, const void* from, int x, int y, int z, Site site = Site::here()) {
  emu::tma_store(map, from, 3, {x, y, z, 0}, site);
}
inline void tma_store_4d(const TensorMap& map, const void* from, int x, int y, int z, int w, Site site = Site::here()) {
  emu::tma_store(map, from, 4, {x, y, z, w}, site);
}
inline void tma_store_commit() { emu::running_fiber->tma_stores.commit(); }
/// Waits until at most N groups of stores still read shared memory.
template <int N>
void tma_store_wait(Site site = Site::here()) {
  emu::running_fiber->site = site;
  emu::running_fiber->tma_stores.wait(N);
}

// ---- matrices -------------------------------------------------------------------------------------------------------
template <class T>
inline constexpr emu::Half half_type = std::is_same_v<T, bf16> ? emu::Half::bf16 : emu::Half::f16;

inline void ldmatrix_x4(std::uint32_t* registers, const void* row, Site site = Site::here()) {
  emu::ldmatrix(registers, 4, false, row, site);
}
inline void ldmatrix_x4_transposed(std::uint32_t* registers, const void* row, Site site = Site::here()) {
  emu::ldmatrix(registers, 4, true, row, site);
}
inline void stmatrix_x4(const std::uint32_t* registers, void* row, Site site = Site::here()) {
  emu::stmatrix(registers, 4, row, site);
}
template <class T>
void mma_m16n8k16(float* d, const std::uint32_t* a, const std::uint32_t* b, Site site = Site::here()) {
  emu::mma_m16n8k16(d, a, b, half_type<T>, site);
}

inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(static_cast<const std::byte*>(pointer) - emu::running_block->shared_at(0));
}
template <class T, int N, bool kTransposeA = false, bool kTransposeB = false>
void wgmma_m64k16(float* d, std::uint64_t a, std::uint64_t b, bool accumulate, Site site = Site::here()) {
  emu::wgmma({d, nullptr, a, b, N, accumulate, kTransposeA, kTransposeB, half_type<T>}, site);
}
/// A from registers: the fragment of m16n8k16, warp w holding rows 16 w to 16 w + 15.
template <class T, int N, bool kTransposeB = false>
void wgmma_m64k16_registers(float* d, const std::uint32_t* a, std::uint64_t b, bool accumulate,
                            Site site = Site::here()) {
  emu::wgmma({d, a, 0, b, N, accumulate, false, kTransposeB, half_type<T>}, site);
}
/// Keeps the compiler from moving reads of `count` accumulators before the wait; under emulation nothing moves.
template <int Count>
void wgmma_hold(float*) {}
inline void wgmma_fence(Site site = Site::here()) { emu::wgmma_fence(site); }
inline void wgmma_commit(Site site = Site::here()) { emu::wgmma_commit(site); }
template <int Newest>
void wgmma_wait(Site site = Site::here()) {
  emu::wgmma_wait(Newest, site);
}

// ---- starting kernels -----------------------------------------------------------------------------------------------
struct LaunchConfig {
  const char* name = "kernel";  ///< for error messages
  Dim3 grid, block;
  std::size_t dynamic_shared = 0;
  Stream stream = nullptr;
  int cluster = 1;  ///< blocks of a cluster: neighbours in x
};

inline const DeviceLimits& device_limits() { return emu::limits_here; }
inline int multiprocessors() { return device_limits().multiprocessors; }
/// How many clusters of this launch can run at the same time, with one block on a multiprocessor.
template <class Kernel>
int resident_clusters(const LaunchConfig& config, Kernel* /*kernel*/) {
  return device_limits().major >= 9 ? multiprocessors() / config.cluster : 0;
}

template <class... Parameters, class... Arguments>
void launch(const LaunchConfig& config, void (*kernel)(Parameters...), const Arguments&... arguments) {
  const emu::LaunchBounds bounds = emu::launch_bounds_of(reinterpret_cast<const void*>(kernel));
  emu::run_grid({config.name, config.grid, config.block, config.dynamic_shared, bounds, device_limits(),
                 needs_shared_opt_in(config.dynamic_shared), config.cluster},
                [&] { kernel(arguments...); });
}

}  // namespace trireme::cuda
