#include "core/cpu/tile_product.h"

#include <array>
#include <utility>

namespace trireme::cpu {
namespace {

/// What else a product does: compute the first vector of columns only, start from the sums that are in place, or copy B
/// into a panel.
enum class Task { none, narrow, add_to_sums, pack_b };

template <class T, int rows, int vectors>
[[gnu::always_inline]] inline void store_tile(Vector<T> (&sum)[rows][vectors], const TilePlace<T>& to) {
  const auto at = [&to](int i, int j) { return to.data + i * to.stride + j * lanes<T>; };
  if (to.bias != nullptr) {
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j) {
      const Vector<T> bias = load(to.bias + j * lanes<T>);
#pragma GCC unroll 16
      for (int i = 0; i < rows; ++i) sum[i][j] += bias;
    }
  }
  if (to.add) {
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < vectors; ++j) store(at(i, j), sum[i][j] + load(at(i, j)));
    }
  } else {
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < vectors; ++j) store(at(i, j), sum[i][j]);
    }
  }
}

/// a [depth, rows] and b [depth, tile_columns], b's steps `b_stride` apart.
template <class T, Task task, int rows>
void product(std::int64_t depth, const T* __restrict a, const T* __restrict b, std::int64_t b_stride,
             T* __restrict packed, const TilePlace<T>& to) {
  constexpr int vectors = task == Task::narrow ? 1 : tile_vectors;
  if (task != Task::pack_b) b_stride = tile_columns<T>;
  Vector<T> sum[rows][vectors];
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j)
      sum[i][j] = task == Task::add_to_sums ? load(to.data + i * to.stride + j * lanes<T>) : Vector<T>{};
  }
  for (std::int64_t k = 0; k < depth; ++k, a += rows, b += b_stride) {
    Vector<T> row[vectors];
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j) row[j] = load(b + j * lanes<T>);
    if constexpr (task == Task::pack_b) {
#pragma GCC unroll 4
      for (int j = 0; j < vectors; ++j) store(packed + k * tile_columns<T> + j * lanes<T>, row[j]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < vectors; ++j) sum[i][j] += row[j] * a[i];
    }
  }
  store_tile<T, rows, vectors>(sum, to);
}

/// The product for each number of rows from 1 on, so that a ragged edge costs only its own rows.
template <class T, Task task>
constexpr auto products = []<int... i>(std::integer_sequence<int, i...>) {
  return std::array{product<T, task, i + 1>...};
}
(std::make_integer_sequence<int, tile_rows>{});

template <class T, Task task>
void call(std::int64_t rows, std::int64_t depth, const T* a, const T* b, std::int64_t b_stride, T* packed,
          const TilePlace<T>& to) {
  products<T, task>[static_cast<std::size_t>(rows - 1)](depth, a, b, b_stride, packed, to);
}

}  // namespace

template <class T>
void tile_product(std::int64_t rows, std::int64_t depth, const T* a, const T* b, const TilePlace<T>& to) {
  call<T, Task::none>(rows, depth, a, b, 0, nullptr, to);
}

template <class T>
void tile_product_narrow(std::int64_t rows, std::int64_t depth, const T* a, const T* b, const TilePlace<T>& to) {
  call<T, Task::narrow>(rows, depth, a, b, 0, nullptr, to);
}

template <class T>
void tile_product_add(std::int64_t rows, std::int64_t depth, const T* a, const T* b, T* tile) {
  call<T, Task::add_to_sums>(rows, depth, a, b, 0, nullptr, {.data = tile});
}

template <class T>
void tile_product_packing_b(std::int64_t rows, std::int64_t depth, const T* a, const T* b, std::int64_t b_stride,
                            T* packed, const TilePlace<T>& to) {
  call<T, Task::pack_b>(rows, depth, a, b, b_stride, packed, to);
}

template void tile_product(std::int64_t, std::int64_t, const float*, const float*, const TilePlace<float>&);
template void tile_product_narrow(std::int64_t, std::int64_t, const float*, const float*, const TilePlace<float>&);
template void tile_product_add(std::int64_t, std::int64_t, const float*, const float*, float*);
template void tile_product_packing_b(std::int64_t, std::int64_t, const float*, const float*, std::int64_t, float*,
                                     const TilePlace<float>&);
template void tile_product(std::int64_t, std::int64_t, const double*, const double*, const TilePlace<double>&);
template void tile_product_narrow(std::int64_t, std::int64_t, const double*, const double*, const TilePlace<double>&);
template void tile_product_add(std::int64_t, std::int64_t, const double*, const double*, double*);
template void tile_product_packing_b(std::int64_t, std::int64_t, const double*, const double*, std::int64_t, double*,
                                     const TilePlace<double>&);

}  // namespace trireme::cpu
