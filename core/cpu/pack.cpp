#include "core/cpu/pack.h"

#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

#include "core/cpu/transpose.h"

namespace trireme::cpu {
namespace {

template <class T, class From, int width>
void pack_any(const Strip<From>& from, std::int64_t first, T* to) {
  for (std::int64_t k = first; k < from.depth; ++k) {
    const From* source = from.data + k * from.depth_stride;
    for (std::int64_t i = 0; i < width; ++i) {
      to[k * width + i] = i < from.count ? static_cast<T>(source[i * from.stride]) : T{0};
    }
  }
}

/// The panel's width is contiguous in the source.
template <class T, class From, int width>
void pack_copy(const Strip<From>& from, T* to) {
  if (from.count != width) return pack_any<T, From, width>(from, 0, to);
  for (std::int64_t k = 0; k < from.depth; ++k) {
    const From* source = from.data + k * from.depth_stride;
    if constexpr (std::is_same_v<T, From>) {
      std::memcpy(to + k * width, source, width * sizeof(T));
    } else {
      for (int i = 0; i < width; ++i) to[k * width + i] = static_cast<T>(source[i]);
    }
  }
}

/// The depth is contiguous in the source: squares of lanes x lanes are transposed in registers.
template <class T, class From, int width>
void pack_transposed(const Strip<From>& from, T* to) {
  constexpr int n = lanes<T>, groups = (width + n - 1) / n;
  const std::int64_t whole = from.depth / n * n;
  for (std::int64_t k = 0; k < whole; k += n) {
    Vector<T> block[groups][n];
#pragma GCC unroll 4
    for (int group = 0; group < groups; ++group) {
#pragma GCC unroll 16
      for (int i = 0; i < n; ++i) {
        const int row = group * n + i;
        block[group][i] = row < width && row < from.count ? load(from.data + row * from.stride + k) : Vector<T>{};
      }
      transpose_square<T>(block[group]);
    }
    // If width is not a multiple of the lanes, a store spills into the next step of k, which is written after it.
#pragma GCC unroll 16
    for (int i = 0; i < n; ++i) {
#pragma GCC unroll 4
      for (int group = 0; group < groups; ++group) store(to + (k + i) * width + group * n, block[group][i]);
    }
  }
  pack_any<T, From, width>(from, whole, to);
}

template <class From, int width>
void pack(const Strip<From>& from, accumulate_t<From>* to) {
  using T = accumulate_t<From>;
  if (from.stride == 1) {
    pack_copy<T, From, width>(from, to);
  } else if (from.depth_stride == 1) {
    pack_transposed<T, From, width>(from, to);
  } else {
    pack_any<T, From, width>(from, 0, to);
  }
}

/// One function for each width of a panel of A, so that a ragged edge costs only its own rows.
template <class From>
constexpr auto packs = []<int... i>(std::integer_sequence<int, i...>) {
  return std::array{pack<From, i + 1>...};
}
(std::make_integer_sequence<int, tile_rows>{});

}  // namespace

template <class From>
void pack_rows(const Strip<From>& from, accumulate_t<From>* to) {
  packs<From>[static_cast<std::size_t>(from.count - 1)](from, to);
}

template <class From>
void pack_columns(const Strip<From>& from, accumulate_t<From>* to) {
  pack<From, tile_columns<accumulate_t<From>>>(from, to);
}

template void pack_rows(const Strip<double>&, double*);
template void pack_rows(const Strip<float>&, float*);
template void pack_rows(const Strip<bf16>&, float*);
template void pack_rows(const Strip<f16>&, float*);
template void pack_columns(const Strip<double>&, double*);
template void pack_columns(const Strip<float>&, float*);
template void pack_columns(const Strip<bf16>&, float*);
template void pack_columns(const Strip<f16>&, float*);

}  // namespace trireme::cpu
