// A block's tile of a matrix product on Ampere: a ring of stages filled by cp.async, fragments by ldmatrix, products by
// mma.sync m16n8k16. Shared by gemm_sm80.cu and gemm_grouped_sm80.cu. Formulas, bytes and FLOPs: cuda/kernels/gemm.h.
//
// One barrier per step of K: it ensures that stage k has arrived, and that all threads are done with stage k - 1, into
// which the copy for step k + Stages - 1 then goes.
// Read next: cuda/kernels/gemm_sm80.cu.
#pragma once

#include "cuda/kernels/gemm_store.h"
#include "cuda/kernels/tile.h"

namespace trireme::cuda::sm80 {

/// M x N x K of a block, and how its warps divide M and N.
template <int M, int N, int K, int WarpsM, int WarpsN, int Stages_>
struct Shape {
  static constexpr int kM = M, kN = N, kK = K, kWarpsM = WarpsM, kWarpsN = WarpsN, kStages = Stages_;
  static constexpr int kThreads = 32 * WarpsM * WarpsN;
  /// Blocks per multiprocessor: while one block waits for its first tiles or stores, another multiplies. The largest
  /// number that leaves ptxas enough registers: 255 and 168 per thread.
  static constexpr int kBlocks = M == 128 ? 2 : 3;
  static constexpr int kWarpM = M / WarpsM, kWarpN = N / WarpsN;
  __device__ static int warp_m() { return static_cast<int>(threadIdx.x / 32) / WarpsN * kWarpM; }
  __device__ static int warp_n() { return static_cast<int>(threadIdx.x / 32) % WarpsN * kWarpN; }
  static constexpr int kRowsA = kWarpM / 16, kPairsB = kWarpN / 16;
  static constexpr int kStageBytes = (M + N) * K * 2;
  static constexpr int kSums = kWarpM * kWarpN / 32;  // of a thread
  static constexpr int kSlabs = kSlabBytes * WarpsM * WarpsN;
  static constexpr int kSharedBytes = kStages * kStageBytes > kSlabs ? kStages* kStageBytes : kSlabs;
};

/// The ranges of M and K that a tile's product covers: everything, or one group.
struct Part {
  int m_end, k_begin, k_end;
};

/// The operands as they are stored: A by rows of K (or, TN, by rows of M), B by rows of N (or, NT, by rows of K).
template <class T, class S, Form F>
struct Operands {
  static constexpr bool kRowsOfM = F == Form::tn, kRowsOfK = F == Form::nt;
  using A = SharedTile<T, kRowsOfM ? S::kK : S::kM, kRowsOfM ? S::kM : S::kK>;
  using B = SharedTile<T, kRowsOfK ? S::kN : S::kK, kRowsOfK ? S::kK : S::kN>;

  __device__ static A a(std::byte* stage) { return {stage}; }
  __device__ static B b(std::byte* stage) { return {stage + A::kBytes}; }

  template <bool Aligned, class P>
  __device__ static void copy(const P& p, const T* pa, const T* pb, const Part& part, std::byte* stage, int m, int n,
                              int k) {
    const int thread = static_cast<int>(threadIdx.x);
    if constexpr (kRowsOfM)
      a(stage).template copy_from<Aligned>(pa, p.a_pitch, k, m, part.k_end, part.m_end, thread, S::kThreads);
    else
      a(stage).template copy_from<Aligned>(pa, p.a_pitch, m, k, part.m_end, part.k_end, thread, S::kThreads);
    if constexpr (kRowsOfK)
      b(stage).template copy_from<Aligned>(pb, p.b_pitch, n, k, p.n, part.k_end, thread, S::kThreads);
    else
      b(stage).template copy_from<Aligned>(pb, p.b_pitch, k, n, part.k_end, p.n, thread, S::kThreads);
  }
  /// A [16, 16] at (m, k) and B [16, 16] at (k, n), as fragments.
  __device__ static void fragment_a(std::byte* stage, std::uint32_t* f, int m, int k) {
    if constexpr (kRowsOfM)
      a(stage).load_transposed(f, k, m);
    else
      a(stage).load(f, m, k);
  }
  __device__ static void fragment_b(std::byte* stage, std::uint32_t* f, int k, int n) {
    if constexpr (kRowsOfK)
      b(stage).load_pair(f, n, k);
    else
      b(stage).load_pair_transposed(f, k, n);
  }
};

/// One stage's products for a warp at (warp_m, warp_n) of the block's tile. Sums: 16 rows after the other, and in these
/// 8 columns after the other.
template <class T, class S, Form F>
__device__ __forceinline__ void multiply_stage(std::byte* stage, int warp_m, int warp_n, float (&sums)[S::kSums]) {
  using O = Operands<T, S, F>;
  TRIREME_UNROLL
  for (int k = 0; k < S::kK; k += 16) {
    std::uint32_t a[S::kRowsA][4], b[S::kPairsB][4];
    TRIREME_UNROLL
    for (int i = 0; i < S::kRowsA; ++i) O::fragment_a(stage, a[i], warp_m + 16 * i, k);
    TRIREME_UNROLL
    for (int j = 0; j < S::kPairsB; ++j) O::fragment_b(stage, b[j], k, warp_n + 16 * j);
    TRIREME_UNROLL
    for (int i = 0; i < S::kRowsA; ++i) TRIREME_UNROLL
    for (int j = 0; j < 2 * S::kPairsB; ++j)
      mma_m16n8k16<T>(sums + 4 * (2 * S::kPairsB * i + j), a[i], b[j / 2] + j % 2 * 2);
  }
}

/// The whole sum of the tile at (m, n). On return all of shared memory is free.
template <class S, Form F, bool Aligned, class T, class P>
__device__ __forceinline__ void multiply_tile(const P& p, const T* a, const T* b, const Part& part, std::byte* memory,
                                              int m, int n, float (&sums)[S::kSums]) {
  using O = Operands<T, S, F>;
  const int steps = (part.k_end - part.k_begin + S::kK - 1) / S::kK;
  const auto stage = [&](int step) { return memory + step % S::kStages * S::kStageBytes; };
  const auto copy = [&](int step) {
    O::template copy<Aligned>(p, a, b, part, stage(step), m, n, part.k_begin + step * S::kK);
  };
  for (int step = 0; step < S::kStages - 1; ++step) {
    if (step < steps) copy(step);
    cp_async_commit();  // also when empty, so that the group count equals the step number
  }
  for (int step = 0; step < steps; ++step) {
    cp_async_wait<S::kStages - 2>();
    sync_threads();
    if (step + S::kStages - 1 < steps) copy(step + S::kStages - 1);
    cp_async_commit();
    multiply_stage<T, S, F>(stage(step), S::warp_m(), S::warp_n(), sums);
  }
  sync_threads();
}

/// Finishes and stores the tile. All of shared memory must be free.
template <class S, class T, class Out>
__device__ __forceinline__ void store_tile(const Gemm<T, Out>& p, const Place<T>& place, std::byte* memory, int m,
                                           int n, float (&sums)[S::kSums]) {
  using W = Windows<S::kSums / kWindowSums, S::kWarpN / kWindowColumns, 16>;
  std::byte* const slab = memory + static_cast<int>(threadIdx.x / 32) * kSlabBytes;
  store_windows<W, Epilogues::all>(Finisher<false, T, Out>(p, slab),
                                   W::first(place, m + S::warp_m(), n + S::warp_n(), p.n, p.c_pitch), place.bias, sums);
}

/// True if cp.async can read an operand: it needs multiples of 16 bytes.
template <class T>
bool aligned(const T* pointer, std::int64_t pitch, std::int64_t stride) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0 && pitch % 8 == 0 && stride % 8 == 0;
}

using Large = Shape<128, 128, 32, 2, 2, 4>;
using Small = Shape<64, 64, 32, 2, 2, 4>;

}  // namespace trireme::cuda::sm80
