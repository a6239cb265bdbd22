// A block's tile of a matrix product on Hopper: TMA fills a ring of stages, mbarriers track which are full and which
// are free, and wgmma multiplies directly from shared memory. Shared by gemm_sm90.cu and gemm_grouped_sm90.cu, which
// decide on the tiles of a block. Formulas: cuda/kernels/gemm.h.
//
// Blocks are persistent: one per multiprocessor, each processing many tiles. A block has a producer warp group, whose
// one thread issues copies, and consumer warp groups that own rows of the tile. The producer runs ahead into the next
// tile while the consumers store this one, and gives them its registers (setmaxnreg). The second consumer begins one
// step late and stays behind, so that one still multiplies while the other stores.
//
// Work: 2 M N K FLOPs, with M, N and K rounded up to the tile. A tile of 256 x 192 reads 2 (256 + 192) K bytes for
// 2 256 192 K FLOPs: 110 FLOPs a byte from L2; 128 x 256 has 85, and gemm_sm80 64. Tensor cores do 4096 FLOPs a cycle,
// and L2 gives a multiprocessor between 32 and 48 bytes. Global memory: 2 (M K + K N) bytes at least once, and M N
// values written.
// Each consumer could have a tile of its own instead, so that one's stores overlap with the other's products. But such
// a tile has half the sums, 128 x 128, and so 64 FLOPs a byte.
// Tiles over an edge need no branches: TMA reads zeros outside, and the store skips rows and columns outside.
// Read next: cuda/kernels/gemm_sm90.cu; cuda/device/nvcc_hopper.h, what each instruction says.
#pragma once

#include "cuda/device/tensor_map.h"
#include "cuda/kernels/gemm_store.h"

namespace trireme::cuda::sm90 {

inline constexpr int kGroup = 128;                  // threads of a warp group
inline constexpr int kStep = 64;                    // K of a stage: a swizzled row of 128 bytes
inline constexpr int kChunkBytes = 64 * kStep * 2;  // 64 rows of 128 bytes: the unit of operands in a stage

/// A block's tile is [64 Parts Consumers, N]: a consumer has `Parts` products of wgmma, 64 rows each, for 16 of K. N is a
/// multiple of 64 that wgmma offers.
template <int Consumers, int Parts, int N, int Stages_, Epilogues Finishes = Epilogues::all>
struct Shape {
  static constexpr int kConsumers = Consumers, kParts = Parts, kM = 64 * Parts * Consumers, kN = N, kStages = Stages_;
  static constexpr int kSums = Parts * N / 2;  // of a thread
  static constexpr Epilogues kEpilogues = Finishes;
  static constexpr int kThreads = kGroup * (Consumers + 1);
  static constexpr int kBytesA = kM / 64 * kChunkBytes, kBytesB = N / 64 * kChunkBytes;
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

/// Computes a consumer's rows of one tile. A product stays in flight while the next is issued. A slot is free when the
/// products that read it have ended; each warp knows this only for itself. CutsK: K may be 0 or end in a stage.
template <class T, class S, Form F, bool CutsK>
__device__ __forceinline__ void multiply(std::byte* memory, int group, int first, int k, float (&sums)[S::kSums]) {
  const bool announces = threadIdx.x % 32 == 0;
  const int steps = (k + kStep - 1) / kStep;
  TRIREME_UNROLL
  for (int i = 0; i < S::kSums; ++i) sums[i] = 0.0F;
  if constexpr (CutsK)
    if (steps == 0) return;
  for (int step = first; step < first + steps; ++step) {
    const Slot<S> slot(memory, step);
    mbarrier_wait(slot.full, slot.parity);
    if constexpr (CutsK)
      if (const int left = k - (step - first) * kStep; left < kStep) clear_rows<S>(slot.a, left);
    wgmma_fence();
    TRIREME_UNROLL
    for (int i = 0; i < kStep; i += 16) {
      TRIREME_UNROLL
      for (int part = 0; part < S::kParts; ++part)
        wgmma_m64k16<T, S::kN, F == Form::tn, F != Form::nt>(
            sums + part * S::kN / 2, descriptor<F != Form::tn>(slot.a + (group * S::kParts + part) * kChunkBytes, i),
            descriptor<F == Form::nt>(slot.b, i), true);
    }
    wgmma_commit();
    wgmma_wait<1>();
    if (announces && step > first) mbarrier_arrive(Slot<S>(memory, step - 1).empty);
  }
  wgmma_wait<0>();
  wgmma_hold<S::kSums>(sums);
  if (announces) mbarrier_arrive(Slot<S>(memory, first + steps - 1).empty);
}

/// The windows of a consumer's warp: 16 rows of each part.
template <class S>
using WarpWindows = Windows<S::kSums / kWindowSums, S::kN / kWindowColumns, 64>;

template <class S, class T, class Out>
__device__ __forceinline__ Window first_window(const Gemm<T, Out>& p, const Place<T>& place, int m, int n, int warp) {
  return WarpWindows<S>::first(place, m + warp / 4 * 64 * S::kParts + warp % 4 * 16, n, p.n, p.c_pitch);
}

/// The sums of a tile as the threads hold them: fours of neighbouring registers, thread by thread. `thread`: of all
/// consumers.
template <class S>
__device__ __forceinline__ void store_partial(float* partial, int thread, const float (&sums)[S::kSums]) {
  TRIREME_UNROLL
  for (int i = 0; i < S::kSums; i += 4) {
    const Pack<float, 4> four = {{sums[i], sums[i + 1], sums[i + 2], sums[i + 3]}};
    store_vector(partial + i * S::kConsumers * kGroup + thread * 4, four);
  }
}
template <class S>
__device__ __forceinline__ void add_partial(const float* partial, int thread, float (&sums)[S::kSums]) {
  TRIREME_UNROLL
  for (int i = 0; i < S::kSums; i += 4) {
    const auto four = load_vector<Pack<float, 4>>(partial + i * S::kConsumers * kGroup + thread * 4);
    TRIREME_UNROLL
    for (int j = 0; j < 4; ++j) sums[i + j] += four.values[j];
  }
}

template <class T, class S, Form F, class Tiles, class P>
__device__ __forceinline__ void consume(const P& p, std::byte* memory) {
  const int warp = static_cast<int>(threadIdx.x / 32) - 4;  // warps 0 to 3 are the producer's
  const Finisher<true, T, std::remove_cvref_t<decltype(*p.product.c)>> finisher(p.product,
                                                                                memory + S::kSlabs + warp * kSlabBytes);
  float sums[S::kSums];
  Tiles tiles;
  int step = 0;
  for (int item = 0; tiles.seek(p, item); ++item) {
    if (tiles.idle(p)) continue;
    const int k = tiles.k_end(p) - tiles.k_begin(p);
    if (tiles.partial(p) == nullptr)
      WarpWindows<S>::prefetch(finisher.ahead, first_window<S>(p.product, tiles.place(p), tiles.m, tiles.n, warp),
                               p.product.c_pitch);
    if (step == 0 && warp >= 4 && k > kStep) mbarrier_wait(Slot<S>(memory, 1).full, 0);  // one step late
    multiply<T, S, F, Tiles::kCutsK>(memory, warp / 4, step, k, sums);
    step += (k + kStep - 1) / kStep;
    if (float* const partial = tiles.partial(p); partial != nullptr)
      store_partial<S>(partial, static_cast<int>(threadIdx.x) - kGroup, sums);
    else
      store_windows<WarpWindows<S>, S::kEpilogues>(
          finisher, first_window<S>(p.product, tiles.place(p), tiles.m, tiles.n, warp), tiles.place(p).bias, sums);
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
    if constexpr (S::kConsumers > 1) set_max_registers_down<24>();
    if (thread == 0) produce<S, F, Tiles>(p, memory);
  } else {
    if constexpr (S::kConsumers > 1) set_max_registers_up<240>();
    consume<T, S, F, Tiles>(p, memory);
  }
}

template <Epilogues Finishes>
using Wide = Shape<2, 2, 192, 3, Finishes>;
using Large = Shape<2, 1, 256, 4>;
using Medium = Shape<2, 1, 128, 4>;
using Small = Shape<1, 1, 64, 4>;

}  // namespace trireme::cuda::sm90
