// A warp stores the result of a product in windows of 16 rows and 32 columns. This file moves a window between global
// memory (16 bytes per lane, by rows) and the warp's slab in shared memory.
// Read next: cuda/kernels/gemm_store.h.
#pragma once

#include "cuda/kernels/pieces.h"
#include "cuda/kernels/tile.h"

namespace trireme::cuda {

inline constexpr int kWindowColumns = 32;                     // of a window
inline constexpr int kWindowSums = 16 * kWindowColumns / 32;  // of a window, in each lane
inline constexpr int kReadBytes = 16 * kWindowColumns * 2;
inline constexpr int kSlabBytes =
    2 * kReadBytes + 16 * kWindowColumns * 4;  // of a warp: two windows to read, one to write

/// Where a window begins in c, and in tensors laid out like c, and how many rows and columns from there on exist.
struct Window {
  std::int64_t at;
  int rows, columns;
  __device__ bool empty() const { return rows <= 0 || columns <= 0; }  ///< the same for all lanes
};

/// How lanes divide a window of V by rows, for global memory: each has 16 bytes of the same columns in every kStep-th
/// row.
template <class V>
struct RowLanes {
  static constexpr int kValues = 16 / static_cast<int>(sizeof(V)), kLanes = kWindowColumns / kValues;
  static constexpr int kStep = 32 / kLanes, kCount = 16 / kStep;
  static constexpr int kStepBytes = kStep * kWindowColumns * static_cast<int>(sizeof(V));  // in the slab
  using Piece = Packed<V, kValues>;
  std::int64_t at;    ///< of this lane's first element
  int rows, columns;  ///< that exist from there on
  std::byte* slab;    ///< this lane's first 16 bytes in the slab; the next lie kStepBytes further

  __device__ __forceinline__ RowLanes(const Window& w, std::int64_t pitch, std::byte* memory) {
    const int lane = static_cast<int>(threadIdx.x % 32), row = lane / kLanes, column = lane % kLanes * kValues;
    at = w.at + row * pitch + column;
    rows = w.rows - row;
    columns = w.columns - column;
    slab = memory + place(row, column);
  }
  /// How many values of its 16 bytes exist.
  __device__ int values() const { return columns < 0 ? 0 : columns < kValues ? columns : kValues; }
  /// The byte of a value in the slab. Pieces are permuted so that rows and fragments both touch all banks.
  __device__ static int place(int row, int column) {
    const int piece = column / kValues, permuted = sizeof(V) == 2 ? piece ^ (row / 2 % 4) : piece ^ (row % 4 * 2);
    return (row * kLanes + permuted) * 16 + column % kValues * static_cast<int>(sizeof(V));
  }
};

/// Copies a window of `from` into the slab; complete after cp_async_wait and sync_warp. `vectors`:
/// rows_allow_vectors(p).
template <class T>
__device__ __forceinline__ void bring(const T* from, const Window& w, std::int64_t pitch, bool vectors,
                                      std::byte* memory) {
  using L = RowLanes<T>;
  const L lane(w, pitch, memory);
  const T* at = from + lane.at;
  TRIREME_UNROLL
  for (int i = 0; i < L::kCount; ++i, at += L::kStep * pitch) {
    const int values = i * L::kStep < lane.rows ? lane.values() : 0;
    if (vectors) {
      cp_async_16(lane.slab + i * L::kStepBytes, values > 0 ? at : from, 2 * values);
    } else {
      TRIREME_NO_UNROLL
      for (int c = 0; c < L::kValues; ++c)
        reinterpret_cast<T*>(lane.slab + i * L::kStepBytes)[c] = c < values ? at[c] : from_float<T>(0.0F);
    }
  }
}

/// Stores this lane's whole pieces of the window in the slab to `to`, as many as `rows` allow. `add`: f32 only, to what
/// is there.
template <class V>
__device__ __forceinline__ void take_pieces(const RowLanes<V>& lane, V* to, int rows, std::int64_t pitch, bool add) {
  using L = RowLanes<V>;
  using Piece = typename L::Piece;
  constexpr int kBatch = 2;  // requested together: with more, sums of 128 x 192 leave too few registers
  TRIREME_UNROLL
  for (int first = 0; first < L::kCount; first += kBatch) {
    Piece values[kBatch];
    TRIREME_UNROLL
    for (int i = 0; i < kBatch; ++i) values[i] = load_vector<Piece>(lane.slab + (first + i) * L::kStepBytes);
    if constexpr (sizeof(V) == 4) {
      if (add) {
        Piece old[kBatch] = {};
        TRIREME_UNROLL
        for (int i = 0; i < kBatch; ++i)
          if ((first + i) * L::kStep < rows) old[i] = load_vector<Piece>(to + (first + i) * L::kStep * pitch);
        TRIREME_UNROLL
        for (int i = 0; i < kBatch; ++i) {
          TRIREME_UNROLL
          for (int j = 0; j < L::kValues; ++j) values[i].values[j] += old[i].values[j];
        }
      }
    }
    TRIREME_UNROLL
    for (int i = 0; i < kBatch; ++i)
      if ((first + i) * L::kStep < rows) store_vector(to + (first + i) * L::kStep * pitch, values[i]);
  }
}

/// Stores the window in the slab. `add`: f32 only, to what is there.
template <class V>
__device__ __forceinline__ void take(V* to, const Window& w, std::int64_t pitch, bool vectors, std::byte* memory,
                                     bool add) {
  using L = RowLanes<V>;
  const L lane(w, pitch, memory);
  to += lane.at;
  if (vectors && lane.columns >= L::kValues) return take_pieces(lane, to, lane.rows, pitch, add);
  TRIREME_NO_UNROLL
  for (int i = 0; i < L::kCount; ++i, to += L::kStep * pitch) {
    if (i * L::kStep >= lane.rows) break;
    TRIREME_NO_UNROLL
    for (int c = 0; c < lane.values(); ++c) {
      V value = reinterpret_cast<const V*>(lane.slab + i * L::kStepBytes)[c];
      if constexpr (sizeof(V) == 4)
        if (add) value += to[c];
      to[c] = value;
    }
  }
}

/// The bias of a lane's columns from column `first` on, as pairs: of 8 j + 2 (lane % 4) and the next. Each lane reads
/// one pair, and lanes exchange them.
template <class T>
__device__ __forceinline__ void read_bias(const T* bias, int first, int columns,
                                          std::uint32_t (&pairs)[kWindowColumns / 8]) {
  TRIREME_UNROLL
  for (std::uint32_t& pair : pairs) pair = 0;
  if (bias == nullptr) return;
  const int lane = static_cast<int>(threadIdx.x % 32), column = 2 * (lane % (kWindowColumns / 2));
  std::uint32_t pair = 0;
  if (column < columns) pair = bias[first + column].bits;
  if (column + 1 < columns) pair |= std::uint32_t{bias[first + column + 1].bits} << 16;
  TRIREME_UNROLL
  for (int j = 0; j < kWindowColumns / 8; ++j) pairs[j] = shuffle(pair, 4 * j + lane % 4);
}

}  // namespace trireme::cuda
