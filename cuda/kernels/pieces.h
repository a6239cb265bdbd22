// Pieces: the unit that a thread of a memory-bound kernel moves at a time, 16 bytes if addresses allow it. Arrays may
// have any length and address: a ragged end, or an array that does not begin at a multiple of 16 bytes, is moved
// element by element.
// Read next: cuda/kernels/elementwise.cu.
#pragma once

#include <bit>
#include <type_traits>

#include "cuda/device/device.h"

namespace trireme::cuda {

/// N values of 16 bits, two per register. If the branches of load_piece returned separate 16-bit values, nvcc would
/// unpack each load in its branch, and wait for it before the next load.
template <int N>
struct alignas(2 * N) PairsOf {
  std::uint32_t words[N / 2];
};

/// N values for as long as they wait in registers.
template <class T, int N>
using Packed = std::conditional_t<sizeof(T) == 2, PairsOf<N>, Pack<float, N>>;

template <class T, int N>
__device__ __forceinline__ Packed<T, N> packed(const float (&x)[N]) {
  Packed<T, N> result;
  TRIREME_UNROLL
  for (int i = 0; i < N; ++i)
    if constexpr (sizeof(T) == 4)
      result.values[i] = x[i];
    else if (i % 2 == 0)
      result.words[i / 2] = pack_pair<T>(x[i], x[i + 1]);
  return result;
}
template <class T, int N>
__device__ __forceinline__ float unpacked(const Packed<T, N>& from, int i) {
  if constexpr (sizeof(T) == 4)
    return from.values[i];
  else
    return i % 2 == 0 ? low_half<T>(from.words[i / 2]) : high_half<T>(from.words[i / 2]);
}

/// N values from `from` on, of which `count` exist: none if it is negative, all if it is N or more; zeros instead of
/// the others. Callers pass the distance to the end as it is. If they cut it to 0 to N, ptxas 13.0 would join both
/// bounds and the comparison with N into one instruction, whose answer is wrong: a ragged end would be read as a whole
/// piece.
template <int N, class T>
__device__ __forceinline__ Pack<T, N> load_piece(const T* from, int count) {
  const bool whole = count >= N && reinterpret_cast<std::uintptr_t>(from) % sizeof(Pack<T, N>) == 0;
  if constexpr (sizeof(T) == 2 && N % 2 == 0) {
    PairsOf<N> pairs = {};
    if (whole) {
      pairs = load_vector<PairsOf<N>>(from);
    } else {
      TRIREME_UNROLL
      for (int i = 0; i < N; ++i)
        if (i < count) pairs.words[i / 2] |= std::uint32_t{from[i].bits} << (i % 2 * 16);
    }
    return std::bit_cast<Pack<T, N>>(pairs);
  } else {
    Pack<T, N> piece = {};
    if (whole) return load_vector<Pack<T, N>>(from);
    TRIREME_UNROLL
    for (int i = 0; i < N; ++i)
      if (i < count) piece.values[i] = from[i];
    return piece;
  }
}

/// Stores the first `count` values of a piece; `count` as for load_piece.
template <int N, class T>
__device__ __forceinline__ void store_piece(T* to, const Pack<T, N>& piece, int count) {
  if (count >= N && reinterpret_cast<std::uintptr_t>(to) % sizeof(piece) == 0) return store_vector(to, piece);
  TRIREME_UNROLL
  for (int i = 0; i < N; ++i)
    if (i < count) to[i] = piece.values[i];
}

/// This thread's piece of `count` elements cut into pieces of N, one per thread of a one-dimensional grid.
struct MyPiece {
  std::int64_t first;
  int count;  ///< 0 to N
};
template <int N>
__device__ __forceinline__ MyPiece my_piece(std::int64_t count) {
  const std::int64_t first =
      N * (std::int64_t{blockIdx.x} * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x));
  return {first, count <= first ? 0 : count - first < N ? static_cast<int>(count - first) : N};
}

/// The grid with one thread for each piece of `per_thread` elements.
inline Dim3 grid_of_pieces(std::int64_t count, int threads, int per_thread) {
  const std::int64_t per_block = std::int64_t{threads} * per_thread;
  return {static_cast<unsigned>((count + per_block - 1) / per_block), 1, 1};
}

/// Short rows share a warp: each gets 2^bits lanes, so that a lane has up to `per_lane` values of its row. A longer row
/// takes the whole warp, and a lane has more than `per_lane` values.
inline int lane_bits_of_row(std::int64_t width, int per_lane) {
  int bits = 0;
  while (bits < 5 && (std::int64_t{per_lane} << bits) < width) ++bits;
  return bits;
}

/// Which lanes work on which row, from lane_bits_of_row; `row` may be beyond the last.
struct RowShare {
  std::int64_t row;
  int lane, lanes;
};
__device__ __forceinline__ RowShare my_row_share(int lane_bits) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
  const int lanes = 1 << lane_bits;
  return {thread >> lane_bits, static_cast<int>(threadIdx.x) & (lanes - 1), lanes};
}

}  // namespace trireme::cuda
