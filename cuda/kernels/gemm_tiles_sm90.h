// A block's tile of a matrix product on Hopper: TMA fills a ring of stages, mbarriers track which are full and which
// are free, and wgmma multiplies directly from shared memory. Shared by gemm_sm90.cu and gemm_grouped_sm90.cu, which
// decide on the tiles of a block. Formulas: cuda/kernels/gemm.h.
//
// Blocks are persistent: one per multiprocessor, each processing many tiles. A block has a producer warp group, whose
// one thread issues copies, and consumer warp groups. The producer runs ahead into the next tile while consumers store
// one, and gives them its registers (setmaxnreg). Consumers either own rows of one tile, or they take tiles in turns:
// then one multiplies while the other finishes and stores, and tensor cores hardly idle, even if sums are short.
//
// Work: 2 M N K FLOPs, with M, N and K rounded up to the tile. A tile of 128 x 192 reads 2 (128 + 192) K bytes for
// 2 128 192 K FLOPs: 77 FLOPs a byte from L2; 256 x 192 has 110, and gemm_sm80 64. Tensor cores do 4096 FLOPs a cycle,
// and L2 gives a multiprocessor some 50 bytes, so 82 are needed. Blocks of a cluster share rows of A: each copies a
// part of them to all (TMA multicast), so that L2 is read once. Two blocks of 256 x 192 have 157 FLOPs a byte; but they
// wait for each other, which pays for long sums only (bench/results/gpu_notes.md). Global memory: 2 (M K + K N) bytes
// at least once, and M N values written.
// Tiles over an edge need no branches: TMA reads zeros outside, and the store skips rows and columns outside.
// Read next: cuda/kernels/gemm_sm90.cu; cuda/device/nvcc_hopper.h, what each instruction says.
#pragma once

#include "cuda/device/tensor_map.h"
#include "cuda/kernels/gemm_store.h"

namespace trireme::cuda::sm90 {

inline constexpr int kGroup = 128;                  // threads of a warp group
inline constexpr int kStep = 64;                    // K of a stage: a swizzled row of 128 bytes
inline constexpr int kChunkBytes = 64 * kStep * 2;  // 64 rows of 128 bytes: the unit of operands in a stage

enum class Consumers : std::uint8_t { one, share_tiles, take_turns };  // one: of a block; otherwise two

/// Each consumer that works on a tile has `Parts` products of wgmma, 64 rows each, for 16 of K. N is a multiple of 64
/// that wgmma offers. The tiles of a cluster's blocks lie beside each other.
template <Consumers consumers, int Parts, int N, int Stages_, Epilogues Finishes = Epilogues::all, int Blocks = 1>
struct Shape {
  static constexpr bool kTurns = consumers == Consumers::take_turns;
  static constexpr int kConsumers = consumers == Consumers::one ? 1 : 2;
  static constexpr int kSharing = consumers == Consumers::share_tiles ? 2 : 1;  // consumers of a tile
  static constexpr int kParts = Parts, kM = 64 * Parts * kSharing, kN = N, kStages = Stages_;
  static constexpr int kBlocks = Blocks;       // of a cluster
  static constexpr int kSums = Parts * N / 2;  // of a thread
  static constexpr Epilogues kEpilogues = Finishes;
  static constexpr int kThreads = kGroup * (kConsumers + 1);
  static constexpr int kBytesA = kM / 64 * kChunkBytes, kBytesB = N / 64 * kChunkBytes;
  static constexpr int kStageBytes = kBytesA + kBytesB;
  static constexpr int kSlabs = kStages * kStageBytes;  // where the slabs begin
  static constexpr int kBarriers = kSlabs + 4 * kConsumers * kSlabBytes;
  static constexpr int kSharedBytes = kBarriers + (2 * kStages + 2) * 8;
  static_assert(kSharedBytes <= 227 * 1024, "more shared memory than a block of sm_90 can have");
};

/// The mbarrier at which a consumer waits for its turn: the other has got all operands of its tile.
template <class S>
__device__ __forceinline__ std::uint64_t* turn_of(std::byte* memory, int consumer) {
  return reinterpret_cast<std::uint64_t*>(memory + S::kBarriers) + 2 * S::kStages + consumer;
}

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

/// Copies an operand's `Width` rows or columns from `first` on, for 64 of K. If `Blocks` of a cluster share the
/// operand, each copies its part of the lines of each chunk to all. A line is a swizzled row of 128 bytes: 64 of K if
/// KMajor, otherwise 64 of M or N.
template <int Width, int Blocks, bool KMajor>
__device__ __forceinline__ void copy_operand(std::byte* to, const TensorMap& map, int first, int k, int z,
                                             std::uint64_t* full) {
  const int line = Blocks > 1 ? cluster_rank() * (64 / Blocks) : 0;
  to += line * 128;
  for (int i = 0; i < Width; i += 64, to += kChunkBytes) {
    const int x = KMajor ? k : first + i, y = (KMajor ? first + i : k) + line;
    if constexpr (Blocks == 1)
      tma_load_3d(to, map, x, y, z, full);
    else
      tma_load_3d_multicast(to, map, x, y, z, full, (1U << Blocks) - 1);
  }
}

// `Tiles` below iterates over the tiles of a block: call seek(p, item) with item = 0, 1, ...; false beyond the last.
// The blocks of a cluster have tiles with the same ranges of K.
// Then m and n are where the tile begins, z_of_a(p) and z_of_b(p) which matrices of the operands it reads, k_begin(p)
// and k_end(p) its range of K, and place(p) where to store it. idle(p): skip it. partial(p): if not null, the sums go
// there as they are, because the range is a part of K. p.product, p.a, p.b: the product and the maps of its operands.

/// The last kWarps warps of the producer's group, if they read the stages as well (cuda/kernels/gemm_row_sums.h). They
/// know tiles only by what the producer notes beside a stage: note(p, memory, step, tiles, k) before the stage is full,
/// and after the last one note_end(memory, step). They must wait for every stage and release it.
struct NoReaders {
  static constexpr int kWarps = 0, kBytes = 0;  // kBytes: of their notes, behind S::kSharedBytes
  template <class P>
  __device__ static void read(const P&, std::byte*) {}
};

/// Runs in one thread: issues the copies of every step of every tile of this block.
template <class S, Form F, class Tiles, class Readers, class P>
__device__ __forceinline__ void produce(const P& p, std::byte* memory) {
  Tiles tiles;
  int step = 0;
  for (int item = 0; tiles.seek(p, item); ++item) {
    if (tiles.idle(p)) continue;
    const int za = tiles.z_of_a(p), zb = tiles.z_of_b(p);
    for (int k = tiles.k_begin(p); k < tiles.k_end(p); k += kStep, ++step) {
      const Slot<S> slot(memory, step);
      mbarrier_wait(slot.empty, slot.parity ^ 1U);
      if constexpr (Readers::kWarps > 0) Readers::note(p, memory, step, tiles, k);
      mbarrier_arrive_expect(slot.full, S::kStageBytes);
      copy_operand<S::kM, S::kBlocks, F != Form::tn>(slot.a, p.a, tiles.m, k, za, slot.full);
      copy_operand<S::kN, 1, F == Form::nt>(slot.b, p.b, tiles.n, k, zb, slot.full);
    }
  }
  if constexpr (Readers::kWarps > 0) {
    const Slot<S> slot(memory, step);
    mbarrier_wait(slot.empty, slot.parity ^ 1U);
    Readers::note_end(memory, step);
    mbarrier_arrive(slot.full);
  }
}

/// Tells all who copy to a stage of this block that a warp has read it. `empty`: this block's mbarrier of the stage.
template <class S>
__device__ __forceinline__ void release(std::uint64_t* empty) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  if constexpr (S::kBlocks == 1) {
    if (lane == 0) mbarrier_arrive(empty);
  } else if (lane < S::kBlocks) {
    mbarrier_arrive_at(empty, lane);
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
/// `group`: which of the consumers that share the tile. Calls filled() when it has got all operands.
template <class T, class S, Form F, bool CutsK, class Filled>
__device__ __forceinline__ void multiply(std::byte* memory, int group, int first, int k, float (&sums)[S::kSums],
                                         const Filled& filled) {
  static_assert(!CutsK || (S::kBlocks == 1 && !S::kTurns), "the blocks of a cluster would clear rows that others read");
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
    if (step + 1 == first + steps) filled();
    wgmma_wait<1>();
    if (step > first) release<S>(Slot<S>(memory, step - 1).empty);
  }
  wgmma_wait<0>();
  wgmma_hold<S::kSums>(sums);
  release<S>(Slot<S>(memory, first + steps - 1).empty);
}

/// The windows of a consumer's warp: 16 rows of each part.
template <class S>
using WarpWindows = Windows<S::kSums / kWindowSums, S::kN / kWindowColumns, 64>;

template <class S, class T, class Out>
__device__ __forceinline__ Window first_window(const Gemm<T, Out>& p, const Place<T>& place, int m, int n, int warp) {
  return WarpWindows<S>::first(place, m + warp / 4 * 64 * S::kParts + warp % 4 * 16, n, p.n, p.c_pitch);
}

/// The sums of a tile as the threads hold them: fours of neighbouring registers, thread by thread.
template <class S>
__device__ __forceinline__ void store_partial(float* partial, const float (&sums)[S::kSums]) {
  std::uint32_t thread = threadIdx.x;
  compute_again(thread);  // nvcc would keep the offset from the first tile on
  thread = (thread - kGroup) % (S::kSharing * kGroup);
  TRIREME_UNROLL
  for (int i = 0; i < S::kSums; i += 4) {
    const Pack<float, 4> four = {{sums[i], sums[i + 1], sums[i + 2], sums[i + 3]}};
    store_vector(partial + i * S::kSharing * kGroup + thread * 4, four);
  }
}
/// Adds those from number `first` on to the sums of a thread. `thread`: of all consumers that share the tile.
template <class S, int Count>
__device__ __forceinline__ void add_partial(const float* partial, int thread, int first, float (&sums)[Count]) {
  TRIREME_UNROLL
  for (int i = 0; i < Count; i += 4) {
    const auto four = load_vector<Pack<float, 4>>(partial + (first + i) * S::kSharing * kGroup + thread * 4);
    TRIREME_UNROLL
    for (int j = 0; j < 4; ++j) sums[i + j] += four.values[j];
  }
}

template <class T, class S, Form F, class Tiles, class Readers, class P>
__device__ __forceinline__ void consume(const P& p, std::byte* memory) {
  const int warp = static_cast<int>(threadIdx.x / 32) - 4;  // warps 0 to 3 are the producer's
  const int consumer = warp / 4, of_tile = S::kTurns ? warp % 4 : warp;
  // Beside readers ptxas finds no registers for what the other kernels read ahead: a residual.
  const Finisher<true, T, std::remove_cvref_t<decltype(*p.product.c)>> finisher(
      p.product, memory + S::kSlabs + warp * kSlabBytes, Readers::kWarps == 0);
  float sums[S::kSums];
  Tiles tiles;
  int step = 0;
  for (int item = 0; tiles.seek(p, item); ++item) {
    if (tiles.idle(p)) continue;
    const int k = tiles.k_end(p) - tiles.k_begin(p), first = step;
    step += (k + kStep - 1) / kStep;
    if constexpr (S::kTurns) {
      if (item % 2 != consumer) continue;
      // Without this, the parity of a stage's phase could be that of the phase before the last.
      mbarrier_wait(turn_of<S>(memory, consumer), static_cast<std::uint32_t>(item / 2 + 1 - consumer) & 1U);
    }
    const auto window = [&] { return first_window<S>(p.product, tiles.place(p), tiles.m, tiles.n, of_tile); };
    if (tiles.partial(p) == nullptr) WarpWindows<S>::prefetch(finisher.ahead, window(), p.product.c_pitch);
    multiply<T, S, F, Tiles::kCutsK>(memory, of_tile / 4, first, k, sums, [&] {
      if constexpr (S::kTurns)
        if (threadIdx.x % 32 == 0) mbarrier_arrive(turn_of<S>(memory, 1 - consumer));
    });
    auto same = static_cast<std::uint32_t>(item);
    compute_again(same);  // the place of the tile: to keep it would take registers from the products
    tiles.seek(p, static_cast<int>(same));
    if (float* const partial = tiles.partial(p); partial != nullptr)
      store_partial<S>(partial, sums);
    else
      store_windows<WarpWindows<S>, S::kEpilogues>(finisher, window(), tiles.place(p).bias, sums);
  }
}

/// The body of a kernel of S::kThreads threads.
template <class T, class S, Form F, class Tiles, class Readers = NoReaders, class P>
__device__ __forceinline__ void run(const P& p, std::byte* memory) {
  static_assert(Readers::kWarps < 4, "the first warp issues copies");
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    tma_prefetch(p.a);
    tma_prefetch(p.b);
    for (int i = 0; i < S::kStages; ++i) {
      mbarrier_init(Slot<S>(memory, i).full, 1);
      mbarrier_init(Slot<S>(memory, i).empty, (4 * S::kSharing + Readers::kWarps) * S::kBlocks);
    }
    for (int i = 0; i < 2; ++i) mbarrier_init(turn_of<S>(memory, i), 4);
    fence_mbarrier_init();
  }
  if constexpr (S::kBlocks > 1)
    sync_cluster();
  else
    sync_threads();
  // With one consumer a thread can have 255 registers anyway; with two it has 168 at launch.
  if (thread < kGroup) {
    if constexpr (S::kConsumers > 1) set_max_registers_down<24>();
    if (thread == 0)
      produce<S, F, Tiles, Readers>(p, memory);
    else if (Readers::kWarps > 0 && thread >= kGroup - 32 * Readers::kWarps)
      Readers::read(p, memory);
  } else {
    if constexpr (S::kConsumers > 1) set_max_registers_up<240>();
    consume<T, S, F, Tiles, Readers>(p, memory);
  }
  if constexpr (S::kBlocks > 1) {  // until then others copy to this block, or arrive at its mbarriers
    sync_warp();
    sync_cluster();
  }
}

template <Epilogues Finishes>
using Wide = Shape<Consumers::take_turns, 2, 192, 4, Finishes>;               // 128 x 192
using Pair = Shape<Consumers::share_tiles, 2, 192, 3, Epilogues::simple, 2>;  // 256 x 192 of each block of two
using Large = Shape<Consumers::share_tiles, 1, 256, 4>;
using Medium = Shape<Consumers::share_tiles, 1, 128, 4>;
using Small = Shape<Consumers::one, 1, 64, 4>;

}  // namespace trireme::cuda::sm90
