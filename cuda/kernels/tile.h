// Tiles of 16-bit values in shared memory, for ldmatrix: rows of 16-byte chunks. The chunks of a row are permuted so
// that the eight rows of an 8 x 8 matrix lie in different banks.
#pragma once

#include "cuda/device/device.h"

namespace trireme::cuda {

/// A tile of Rows x Columns values of T. Columns: 32, 64, 96, 128, ... (4 chunks, or a multiple of 8, a row).
template <class T, int Rows, int Columns>
struct SharedTile {
  static constexpr int kChunks = Columns / 8;  ///< per row
  static constexpr int kBytes = Rows * Columns * 2;
  static_assert(kChunks == 4 || kChunks % 8 == 0, "rows of 32 values, or of a multiple of 64");
  std::byte* memory;

  /// Address of the chunk that holds columns 8 chunk to 8 chunk + 7. Two rows of 64 bytes share a line of banks, hence
  /// row / 2.
  __device__ __forceinline__ std::byte* chunk(int row, int chunk) const {
    const int permuted = kChunks == 4 ? chunk ^ (row / 2 % 4) : chunk ^ (row % 8);
    return memory + (row * kChunks + permuted) * 16;
  }
  /// Fragments of a 16 x 16 part whose stored rows are fragment rows: matrix i at row 8 (i % 2), column 8 (i / 2).
  __device__ __forceinline__ void load(std::uint32_t* fragment, int row, int column) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    ldmatrix_x4(fragment, chunk(row + lane % 16, column / 8 + lane / 16));
  }
  /// The reverse of load: by Hopper's stmatrix, or by four stores of pairs.
  template <bool Stmatrix>
  __device__ __forceinline__ void store(const std::uint32_t* fragment, int row, int column) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    if constexpr (Stmatrix) {
      stmatrix_x4(fragment, chunk(row + lane % 16, column / 8 + lane / 16));
    } else {
      TRIREME_UNROLL
      for (int i = 0; i < 4; ++i)
        store_vector(chunk(row + lane / 4 + i % 2 * 8, column / 8 + i / 2) + lane % 4 * 4, fragment[i]);
    }
  }
  /// load with matrices 1 and 2 exchanged: two 8-column fragments of B from rows that are columns of B.
  __device__ __forceinline__ void load_pair(std::uint32_t* fragment, int row, int column) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    ldmatrix_x4(fragment, chunk(row + lane % 8 + lane / 16 * 8, column / 8 + lane / 8 % 2));
  }
  /// The fragment of the transpose: fragment rows are stored columns. A: (row, column) of the stored part.
  __device__ __forceinline__ void load_transposed(std::uint32_t* fragment, int row, int column) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    ldmatrix_x4_transposed(fragment, chunk(row + lane % 8 + lane / 16 * 8, column / 8 + lane / 8 % 2));
  }
  /// Two 8-column fragments of B from rows that are rows of B.
  __device__ __forceinline__ void load_pair_transposed(std::uint32_t* fragment, int row, int column) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    ldmatrix_x4_transposed(fragment, chunk(row + lane % 16, column / 8 + lane / 16));
  }

  /// All `threads` of a block copy the tile at (row, column) of `source` [rows, columns] here, by cp.async, with zeros
  /// outside. Aligned: pitch and addresses are multiples of 16 bytes; otherwise values go through registers and the
  /// copy is complete at once.
  template <bool Aligned>
  __device__ __forceinline__ void copy_from(const T* source, std::int64_t pitch, int row, int column, int rows,
                                            int columns, int thread, int threads) const {
    for (int i = thread; i < Rows * kChunks; i += threads) {
      const int r = i / kChunks, c = i % kChunks;
      int left = row + r < rows ? columns - (column + 8 * c) : 0;
      left = left < 0 ? 0 : left > 8 ? 8 : left;
      // Even if no value is valid, the address must be legal.
      const T* const from = left > 0 ? source + (row + r) * pitch + column + 8 * c : source;
      if constexpr (Aligned) {
        cp_async_16(chunk(r, c), from, 2 * left);
      } else {
        Pack<T, 8> values;
        TRIREME_UNROLL
        for (int j = 0; j < 8; ++j) values.values[j] = j < left ? from[j] : from_float<T>(0.0F);
        store_vector(chunk(r, c), values);
      }
    }
  }
};

}  // namespace trireme::cuda
