// How persistent blocks find their tiles in a grouped product, whose group lengths only the device knows; see
// GroupedGemm in cuda/kernels/gemm.h.
// Read next: cuda/kernels/gemm_grouped_sm80.cu.
#pragma once

#include "cuda/kernels/gemm_epilogue.h"

namespace trireme::cuda {

/// Tiles of M x N, numbered over all groups; blocks take them in turns. A block seeks increasing numbers, and so reads
/// each offset once.
template <int M, int N, Form F>
struct GroupedTiles {
  static constexpr bool kCutsK = F == Form::tn;
  int group = -1, begin = 0, end = 0;  ///< the current group, and its rows
  int first = 0, count = 0;            ///< the number of its first tile, and how many it has
  int m = 0, n = 0;                    ///< where the current tile begins in c; NT, NN: in the c of all groups

  /// Goes to the block's tile `item`; false if it has fewer tiles. p.product: the one over all groups.
  template <class P>
  __device__ __forceinline__ bool seek(const P& p, int item) {
    const int number = static_cast<int>(blockIdx.x) + item * static_cast<int>(gridDim.x);
    const int columns = (p.product.n + N - 1) / N;
    while (number >= first + count) {
      if (++group >= p.groups) return false;
      first += count;
      begin = p.offsets[group];
      end = p.offsets[group + 1];
      count = (rows(p) + M - 1) / M * columns;
    }
    const TileOrder tile(number - first, (rows(p) + M - 1) / M, columns);
    m = (kCutsK ? 0 : begin) + tile.row * M;
    n = tile.column * N;
    return true;
  }
  /// Rows of the current group in c.
  template <class P>
  __device__ __forceinline__ int rows(const P& p) const {
    return kCutsK ? p.product.m : end - begin;
  }
  template <class P>
  __device__ __forceinline__ int z_of_a(const P&) const {
    return 0;
  }
  template <class P>
  __device__ __forceinline__ int z_of_b(const P&) const {
    return kCutsK ? 0 : group;
  }
  template <class P>
  __device__ __forceinline__ int k_begin(const P&) const {
    return kCutsK ? begin : 0;
  }
  template <class P>
  __device__ __forceinline__ int k_end(const P& p) const {
    return kCutsK ? end : p.product.k;
  }
  template <class P>
  __device__ __forceinline__ float* partial(const P&) const {
    return nullptr;  // blocks compute whole tiles
  }
  /// The place of the tile in this group's c.
  template <class P>
  __device__ __forceinline__ auto place(const P& p) const {
    using T = std::remove_cvref_t<decltype(*p.product.a)>;
    const T* const bias = p.product.epilogue.bias;
    return Place<T>{kCutsK ? group * p.product.c_stride : 0, kCutsK ? p.product.m : end,
                    bias == nullptr ? nullptr : bias + std::int64_t{group} * p.product.n};
  }
  /// True if this tile would not change c.
  template <class P>
  __device__ __forceinline__ bool idle(const P& p) const {
    const auto& e = p.product.epilogue;
    return kCutsK && begin == end && e.accumulate && e.bias == nullptr && e.residual == nullptr;
  }
};

/// An upper bound on the number of tiles: the host knows only the total rows of all groups.
template <int M, int N, class T, class Out>
std::int64_t most_tiles(const GroupedGemm<T, Out>& p) {
  const std::int64_t rows = (p.product.m + M - 1) / M, columns = (p.product.n + N - 1) / N;
  return (p.product.form == Form::tn ? rows * p.groups : rows + p.groups - 1) * columns;
}

/// The average rows of a group in c.
template <class T, class Out>
int average_rows(const GroupedGemm<T, Out>& p) {
  return p.product.form == Form::tn ? p.product.m : p.product.m / p.groups;
}

template <class T, class Out>
void check_groups(const char* where, const GroupedGemm<T, Out>& p) {
  check_epilogue(where, p.product);
  if (p.product.batch != 1)
    fail(ExitCode::usage, where, "a batch of {} grouped products; expected 1; start one for each", p.product.batch);
}

}  // namespace trireme::cuda
