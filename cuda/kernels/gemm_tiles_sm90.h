// A block's tile of a matrix product on Hopper: TMA fills a ring of stages, mbarriers track which are full and which
// are free, and wgmma multiplies directly from shared memory. Shared by gemm_sm90.cu and gemm_grouped_sm90.cu, which
// decide on the tiles of a block. Formulas: cuda/kernels/gemm.h.
//
// Blocks are persistent: one per multiprocessor, each processing many tiles. A block has a producer warp group, whose
// one thread issues copies, and consumer warp groups that own 64 rows of the tile each. The producer runs ahead into
// the next tile while the consumers store this one, and gives them its registers (setmaxnreg).
//
// Work: 2 M N K FLOPs, with M, N and K rounded up to the tile. A tile of 128 x 256 reads 2 (128 + 256) K bytes for
// 2 128 256 K FLOPs: 85 FLOPs a byte from L2, against 64 of gemm_sm80. Global memory: 2 (M K + K N) bytes at least
// once, and M N values written.
// Tiles over an edge need no branches: TMA reads zeros outside, and the store skips rows and columns outside.
// Read next: cuda/kernels/gemm_sm90.cu; cuda/device/nvcc_hopper.h, what each instruction says.
#pragma once

#include "cuda/device/tensor_map.h"
#include "cuda/kernels/gemm_epilogue.h"

namespace trireme::cuda::sm90 {

inline constexpr int kGroup = 128;                      // threads of a warp group
inline constexpr int kStep = 64;                        // K of a stage: a swizzled row of 128 bytes
inline constexpr int kChunkBytes = 64 * kStep * 2;      // 64 rows of 128 bytes: the unit of operands in a stage
inline constexpr int kSlabPitch = 64 + 4;               // floats; shifts rows by four banks
inline constexpr int kSlabBytes = 16 * kSlabPitch * 4;  // of a warp: 16 rows, 64 columns at a time

/// A block's tile is [64 Consumers, N]; N is a multiple of 64 that wgmma offers.
template <int Consumers, int N, int Stages_>
struct Shape {
  static constexpr int kConsumers = Consumers, kM = 64 * Consumers, kN = N, kStages = Stages_;
  static constexpr int kThreads = kGroup * (Consumers + 1);
  static constexpr int kBytesA = Consumers * kChunkBytes, kBytesB = N / 64 * kChunkBytes;
  static constexpr int kStageBytes = kBytesA + kBytesB;
  static constexpr int kSlabs = kStages * kStageBytes;  // where the slabs begin
  static constexpr int kBarriers = kSlabs + 4 * Consumers * kSlabBytes;
  static constexpr int kSharedBytes = kBarriers + 2 * kStages * 8;
  static_assert(kSharedBytes <= 227 * 1024, "more shared memory than a block of sm_90 can have");
};

/// The slot in the ring of step `step`, counted over all tiles of a block.
template <class S>
struct Slot {
  std::byte *a, *b;
  std::uint64_t *full, *empty;
  std::uint32_t parity;
  __device__ __forceinline__ Slot(std::byte* memory, int step) {
    const int index = step % S::kStages;
    a = memory + index * S::kStageBytes;
    b = a + S::kBytesA;
    full = reinterpret_cast<std::uint64_t*>(memory + S::kBarriers) + index;
    empty = full + S::kStages;
    parity = static_cast<std::uint32_t>(step / S::kStages % 2);
  }
};

/// Where an operand lies in a stage, for wgmma. KMajor: a row of 128 bytes holds 64 of K, so the 16 of K of a product
/// are 32 bytes of each row. Otherwise a row holds 64 of M or N, and 16 of K are 16 rows.
template <bool KMajor>
__device__ __forceinline__ std::uint64_t descriptor(const std::byte* operand, int k) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62, kEightRows = std::uint64_t{1024 >> 4} << 32;
  // From 64 of M or N to the next 64; unused by K-major operands.
  constexpr std::uint64_t kLeading = std::uint64_t{kChunkBytes >> 4} << 16;
  const std::uint32_t start = shared_address(operand) + static_cast<std::uint32_t>(KMajor ? 2 * k : 128 * k);
  return ((start >> 4) & 0x3fffU) | kLeading | kEightRows | kSwizzle128;
}

// `Tiles` below iterates over the tiles of a block: call seek(p, item) with item = 0, 1, ...; false beyond the last.
// Then m and n are where the tile begins, z_of_a(p) and z_of_b(p) which matrices of the operands it reads, k_begin(p) and
// k_end(p) its range of K, and place(p) where to store it. idle(p): skip it. partial(p): if not null, the sums go there as
// they are, because the range is a part of K. p.product, p.a, p.b: the product and the maps of its operands.

/// Runs in one thread: issues the copies of every step of every tile of this block.
template <class S, Form F, class Tiles, class P>
__device__ __forceinline__ void produce(const P& p, std::byte* memory) {
  Tiles tiles;
  int step = 0;
  for (int item = 0; tiles.seek(p, item); ++item) {
    if (tiles.idle(p)) continue;
    const int za = tiles.z_of_a(p), zb = tiles.z_of_b(p);
    for (int k = tiles.k_begin(p); k < tiles.k_end(p); k += kStep, ++step) {
      const Slot<S> slot(memory, step);
      mbarrier_wait(slot.empty, slot.parity ^ 1U);
      mbarrier_arrive_expect(slot.full, S::kStageBytes);
      for (int i = 0; i < S::kM; i += 64)
        if constexpr (F == Form::tn)
          tma_load_3d(slot.a + i / 64 * kChunkBytes, p.a, tiles.m + i, k, za, slot.full);
        else
          tma_load_3d(slot.a + i / 64 * kChunkBytes, p.a, k, tiles.m + i, za, slot.full);
      for (int j = 0; j < S::kN; j += 64)
        if constexpr (F == Form::nt)
          tma_load_3d(slot.b + j / 64 * kChunkBytes, p.b, k, tiles.n + j, zb, slot.full);
        else
          tma_load_3d(slot.b + j / 64 * kChunkBytes, p.b, tiles.n + j, k, zb, slot.full);
    }
  }
}

/// TN, where groups cut K: TMA reads past a group's end, so rows of a stage from `valid` on belong to the next group.
/// All consumers overwrite them with zeros in both operands, so that even a NaN there has no effect. A row of K is 128
/// bytes of each chunk, also under the swizzle, which only permutes the pieces of a row.
template <class S>
__device__ __forceinline__ void clear_rows(std::byte* stage, int valid) {
  const int thread = static_cast<int>(threadIdx.x) - kGroup;
  for (int chunk = 0; chunk < S::kStageBytes; chunk += kChunkBytes)
    for (int at = valid * 128 + thread * 16; at < kChunkBytes; at += S::kConsumers * kGroup * 16)
      store_vector(stage + chunk + at, Pack<float, 4>{});
  fence_async_proxy();  // for wgmma, and for the TMA that refills the stage
  barrier_sync(1, S::kConsumers * kGroup);
}

/// Computes a consumer's 64 rows of one tile. A product stays in flight while the next is issued. A slot is free when
/// the products that read it have ended; each warp knows this only for itself. CutsK: K may be 0 or end in a stage.
template <class T, class S, Form F, bool CutsK>
__device__ __forceinline__ void multiply(std::byte* memory, int group, int first, int k, float (&sums)[S::kN / 2]) {
  const bool announces = threadIdx.x % 32 == 0;
  const int steps = (k + kStep - 1) / kStep;
  TRIREME_UNROLL
  for (int i = 0; i < S::kN / 2; ++i) sums[i] = 0.0F;
  if constexpr (CutsK)
    if (steps == 0) return;
  for (int step = first; step < first + steps; ++step) {
    const Slot<S> slot(memory, step);
    mbarrier_wait(slot.full, slot.parity);
    if constexpr (CutsK)
      if (const int left = k - (step - first) * kStep; left < kStep) clear_rows<S>(slot.a, left);
    wgmma_fence();
    TRIREME_UNROLL
    for (int i = 0; i < kStep; i += 16)
      wgmma_m64k16<T, S::kN, F == Form::tn, F != Form::nt>(
          sums, descriptor<F != Form::tn>(slot.a + group * kChunkBytes, i), descriptor<F == Form::nt>(slot.b, i), true);
    wgmma_commit();
    wgmma_wait<1>();
    if (announces && step > first) mbarrier_arrive(Slot<S>(memory, step - 1).empty);
  }
  wgmma_wait<0>();
  wgmma_hold<S::kN / 2>(sums);
  if (announces) mbarrier_arrive(Slot<S>(memory, first + steps - 1).empty);
}

/// Stores through the warp's slab, 64 columns at a time, so that global memory sees whole rows.
template <class S, class T, class Out>
__device__ __forceinline__ void store_rows(const Gemm<T, Out>& p, const Place<T>& place, float* slab, int row,
                                           int column, bool vectors, const float (&sums)[S::kN / 2]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  float* const mine = slab + lane / 4 * kSlabPitch + lane % 4 * 2;
  TRIREME_NO_UNROLL  // one copy of the code that finishes a chunk
      for (int chunk = 0; chunk < S::kN; chunk += 64) {
    sync_warp();
    TRIREME_UNROLL
    for (int c = 0; c < S::kN; c += 64) {  // registers have no addresses, so every chunk has its own stores
      if (c != chunk) continue;
      TRIREME_UNROLL
      for (int i = 0; i < 32; i += 2) {  // sums 4 j + 2 h and the next: row lane / 4 + 8 h, columns 8 j + 2 (lane % 4)
        const Pack<float, 2> pair = {{sums[c / 2 + i], sums[c / 2 + i + 1]}};
        store_vector(mine + i / 2 % 2 * 8 * kSlabPitch + i / 4 * 8, pair);
      }
    }
    sync_warp();
    store_slab<64, kSlabPitch, 4>(p, place, slab, row, column + chunk, vectors);
  }
}

/// The sums of a tile as the threads hold them: fours of neighbouring registers, thread by thread. `thread`: of all
/// consumers.
template <class S>
__device__ __forceinline__ void store_partial(float* partial, int thread, const float (&sums)[S::kN / 2]) {
  TRIREME_UNROLL
  for (int i = 0; i < S::kN / 2; i += 4) {
    const Pack<float, 4> four = {{sums[i], sums[i + 1], sums[i + 2], sums[i + 3]}};
    store_vector(partial + i * S::kConsumers * kGroup + thread * 4, four);
  }
}
template <class S>
__device__ __forceinline__ void add_partial(const float* partial, int thread, float (&sums)[S::kN / 2]) {
  TRIREME_UNROLL
  for (int i = 0; i < S::kN / 2; i += 4) {
    const auto four = load_vector<Pack<float, 4>>(partial + i * S::kConsumers * kGroup + thread * 4);
    TRIREME_UNROLL
    for (int j = 0; j < 4; ++j) sums[i + j] += four.values[j];
  }
}

template <class T, class S, Form F, class Tiles, class P>
__device__ __forceinline__ void consume(const P& p, std::byte* memory) {
  const int warp = static_cast<int>(threadIdx.x / 32) - 4;  // warps 0 to 3 are the producer's
  float* const slab = reinterpret_cast<float*>(memory + S::kSlabs + warp * kSlabBytes);
  const bool vectors = rows_allow_vectors<4>(p.product);
  float sums[S::kN / 2];
  Tiles tiles;
  int step = 0;
  for (int item = 0; tiles.seek(p, item); ++item) {
    if (tiles.idle(p)) continue;
    const int k = tiles.k_end(p) - tiles.k_begin(p);
    multiply<T, S, F, Tiles::kCutsK>(memory, warp / 4, step, k, sums);
    if (float* const partial = tiles.partial(p); partial != nullptr)
      store_partial<S>(partial, static_cast<int>(threadIdx.x) - kGroup, sums);
    else
      store_rows<S>(p.product, tiles.place(p), slab, tiles.m + 16 * warp, tiles.n, vectors, sums);
    step += (k + kStep - 1) / kStep;
  }
}

/// The body of a kernel of S::kThreads threads.
template <class T, class S, Form F, class Tiles, class P>
__device__ __forceinline__ void run(const P& p, std::byte* memory) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    tma_prefetch(p.a);
    tma_prefetch(p.b);
    for (int i = 0; i < S::kStages; ++i) {
      mbarrier_init(Slot<S>(memory, i).full, 1);
      mbarrier_init(Slot<S>(memory, i).empty, 4 * S::kConsumers);
    }
    fence_mbarrier_init();
  }
  sync_threads();
  // With one consumer a thread can have 255 registers anyway; with two it has 168 at launch.
  if (thread < kGroup) {
    if constexpr (S::kConsumers > 1) set_max_registers_down<40>();
    if (thread == 0) produce<S, F, Tiles>(p, memory);
  } else {
    if constexpr (S::kConsumers > 1) set_max_registers_up<232>();
    consume<T, S, F, Tiles>(p, memory);
  }
}

using Large = Shape<2, 256, 4>;
using Medium = Shape<2, 128, 4>;
using Small = Shape<1, 64, 4>;

}  // namespace trireme::cuda::sm90
