// Sums the rows of A while a product of form TN is computed on Hopper. With A = dy^T, the product is the gradient of a
// linear layer's weight, and the row sums are the gradient of its bias. Without this, dy would be read from memory a
// second time.
//
// The tile of A of every stage lies in shared memory anyway. Warps of the producer's group, which have nothing to do,
// read it there and add. Tiles beside each other have the same rows of A. If all tiles are divided, so that sums over
// parts of K are joined later anyway, the first four of a row take the steps of K in turns; otherwise a tile at n = 0
// takes all of them. (When those at n = 0 took all, the 48 weight gradients of a step of GPT-2 124M took 7.2 ms on an
// H200, and now 4.8: the warps need longer for a step than the tensor cores do, and other blocks waited for theirs.) A
// chunk of a stage has 64 of M in each of its 64 rows of K, and a warp for itself. Half a warp reads a row of 128 bytes
// at once: each lane reads four values and keeps four sums. The swizzle permutes the 16-byte pieces of a row
// (piece number XOR row % 8), and the lanes permute their addresses in the same way. At the end of a tile the two
// halves of a warp are added. In divided tiles the sums are partial, and join_kernel adds them in the order of K, as it
// does for the product.
//
// The warps have 24 registers a thread, because consumers need 240 (gemm_tiles_sm90.h), and finding a tile takes more
// than that leaves. So the producer, which knows the tile, notes beside each stage what is to be done with it.
//
// Bytes: M sums written; none read from global memory. Instructions of a warp for a stage: 32 loads, 128 conversions
// and 128 additions, some 300 with addresses and barriers, while a stage of a tile of 128 x 192 takes the tensor cores
// 808 cycles. Both warps read 16 KB: 128 cycles of shared memory, beside some 510 for wgmma. For other steps
// they only wait for a stage and release it.
// Read next: tests/cuda/gemm_row_sums_test.cpp.
#pragma once

#include "cuda/kernels/gemm_tiles_sm90.h"

namespace trireme::cuda::sm90 {

/// Readers of run() in gemm_tiles_sm90.h. Sums over a part of K go to p.row_partials, at the place tiles.slot; others
/// go to p.product.row_sums.
template <class T, class S>
struct RowSums {
  static constexpr int kWarps = S::kM / 64, kBytes = S::kStages * 4;  // a chunk for each warp
  static constexpr int kLoads = 4;                                    // requested together
  static_assert(S::kBlocks == 1 && S::kM <= 128, "two warps have no registers for more chunks");
  static_assert(S::kSharedBytes + kBytes <= 227 * 1024, "more shared memory than a block of sm_90 can have");

  template <class P, class Tiles>
  __device__ static __forceinline__ void note(const P& p, std::byte* memory, int step, const Tiles& tiles, int k) {
    auto n = static_cast<std::uint32_t>(tiles.n);
    compute_again(n);  // to keep what follows from it takes registers that the producer does not have
    const int turn = static_cast<int>(n / S::kN), turns = p.row_turns;
    int note = turn == (k / kStep & (turns - 1)) ? kAdd : 0;  // turns: a power of two
    if (turn < turns && k + kStep >= tiles.k_end(p))
      note |= tiles.slot < 0 ? kStore | tiles.m * kWhere : kStore | kPartial | tiles.slot * kWhere;
    *note_of(memory, step) = note;
  }
  __device__ static __forceinline__ void note_end(std::byte* memory, int step) { *note_of(memory, step) = kEnd; }

  template <class P>
  __device__ static __forceinline__ void read(const P& p, std::byte* memory) {
    const int reader = static_cast<int>(threadIdx.x) / 32 - (4 - kWarps);
    float sums[4] = {};
    TRIREME_NO_UNROLL
    for (int step = 0;; ++step) {
      const Slot<S> slot(memory, step);
      mbarrier_wait(slot.full, slot.parity);
      const int note = *note_of(memory, step);
      if (note == kEnd) return;
      if ((note & kAdd) != 0) add_chunk(slot.a + reader * kChunkBytes, sums);
      sync_warp();  // all lanes have read
      release<S>(slot.empty);
      if ((note & kStore) != 0) store(p, note, reader * 64, sums);
    }
  }

 private:
  // Notes. kAdd: this step. kStore: this tile's sums, from row `where` of the result on; kPartial: in slot `where` of the
  // workspace. Where is note / kWhere.
  static constexpr int kAdd = 1, kStore = 2, kPartial = 4, kEnd = 8, kWhere = 16;

  __device__ static __forceinline__ int* note_of(std::byte* memory, int step) {
    return reinterpret_cast<int*>(memory + S::kSharedBytes) + step % S::kStages;
  }

  /// Adds this lane's rows of a chunk: every second one.
  __device__ static __forceinline__ void add_chunk(const std::byte* chunk, float (&sums)[4]) {
    std::uint32_t thread = threadIdx.x;
    compute_again(thread);  // nvcc would keep the addresses of all rows
    const std::uint32_t lane = thread % 32, half = lane / 16;
    const std::uint32_t at = half * 128 + (lane % 16 / 2 ^ half) * 16 + lane % 2 * 8;
    TRIREME_UNROLL
    for (std::uint32_t row = 0; row < 8; row += 2) {
      const std::byte* const from = chunk + (at ^ row * 16) + row * 128;  // row + half in every eighth row
      TRIREME_UNROLL
      for (int first = 0; first < kStep / 8; first += kLoads) {
        Pack<std::uint32_t, 2> fours[kLoads];
        TRIREME_UNROLL
        for (int i = 0; i < kLoads; ++i) fours[i] = load_vector<Pack<std::uint32_t, 2>>(from + (first + i) * 1024);
        TRIREME_UNROLL
        for (int i = 0; i < kLoads; ++i) {  // NOLINT(modernize-loop-convert): all of these loops unroll by index
          TRIREME_UNROLL
          for (int j = 0; j < 4; ++j)
            sums[j] += j % 2 == 0 ? low_half<T>(fours[i].values[j / 2]) : high_half<T>(fours[i].values[j / 2]);
        }
      }
    }
  }

  /// Stores 64 sums, from row `first` of the tile on, and sets them to zero.
  template <class P>
  __device__ static __forceinline__ void store(const P& p, int note, int first, float (&sums)[4]) {
    const bool partial = (note & kPartial) != 0;
    const int lane = static_cast<int>(threadIdx.x % 32), where = note / kWhere, m = partial ? 0 : where;
    float* const to = partial ? p.row_partials + std::int64_t{where} * S::kM : p.product.row_sums + m;
    const bool upper = lane >= 16;  // these lanes finish the upper two of the four sums
    const int row = first + lane % 16 * 4 + (upper ? 2 : 0), rows = (partial ? S::kM : p.product.m - m) - row;
    TRIREME_UNROLL
    for (int j = 0; j < 2; ++j) {
      const float other = shuffle_xor(upper ? sums[j] : sums[j + 2], 16);
      if (j < rows) to[row + j] = (upper ? sums[j + 2] : sums[j]) + other;
    }
    TRIREME_UNROLL
    for (int j = 0; j < 4; ++j) sums[j] = 0;  // NOLINT(modernize-loop-convert)
  }
};

}  // namespace trireme::cuda::sm90
