// Pieces: what a thread of a memory-bound kernel moves at a time, 16 bytes where addresses allow it. Arrays of any
// length at any address are served: a ragged end, or an array that does not begin at a multiple of 16 bytes, is moved
// element by element.
// Read next: cuda/kernels/elementwise.cu.
#pragma once

#include "cuda/device/device.h"

namespace trireme::cuda {

/// N values from `from` on, of which `count` exist; zeros in the place of the others.
template <int N, class T>
__device__ __forceinline__ Pack<T, N> load_piece(const T* from, int count) {
  if (count == N && reinterpret_cast<std::uintptr_t>(from) % sizeof(Pack<T, N>) == 0)
    return load_vector<Pack<T, N>>(from);
  Pack<T, N> piece = {};
  TRIREME_UNROLL
  for (int i = 0; i < N; ++i)
    if (i < count) piece.values[i] = from[i];
  return piece;
}

/// The first `count` values of a piece.
template <int N, class T>
__device__ __forceinline__ void store_piece(T* to, const Pack<T, N>& piece, int count) {
  if (count == N && reinterpret_cast<std::uintptr_t>(to) % sizeof(piece) == 0) return store_vector(to, piece);
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

/// The grid that gives every piece of `per_thread` elements a thread.
inline Dim3 grid_of_pieces(std::int64_t count, int threads, int per_thread) {
  const std::int64_t per_block = std::int64_t{threads} * per_thread;
  return {static_cast<unsigned>((count + per_block - 1) / per_block), 1, 1};
}

}  // namespace trireme::cuda
