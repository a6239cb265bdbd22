#include "core/cpu/tile_product.h"

#include <array>
#include <utility>

namespace trireme::cpu {
namespace {

template <class T, bool add, int rows>
void product(std::int64_t depth, const T* __restrict a, const T* __restrict b, T* __restrict tile) {
  Vector<T> sum[rows][tile_vectors];
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < tile_vectors; ++j) {
      sum[i][j] = add ? load(tile + i * tile_columns<T> + j * lanes<T>) : Vector<T>{};
    }
  }
  for (std::int64_t k = 0; k < depth; ++k, a += rows, b += tile_columns<T>) {
    Vector<T> row[tile_vectors];
#pragma GCC unroll 4
    for (int j = 0; j < tile_vectors; ++j) row[j] = load(b + j * lanes<T>);
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < tile_vectors; ++j) sum[i][j] += row[j] * a[i];
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < tile_vectors; ++j) store(tile + i * tile_columns<T> + j * lanes<T>, sum[i][j]);
  }
}

/// The product for each number of rows from 1 on, so that a ragged edge costs only its own rows.
template <class T, bool add>
constexpr auto products = []<int... i>(std::integer_sequence<int, i...>) {
  return std::array{product<T, add, i + 1>...};
}
(std::make_integer_sequence<int, tile_rows>{});

}  // namespace

template <class T>
void tile_product(std::int64_t rows, std::int64_t depth, const T* a, const T* b, T* tile) {
  products<T, false>[static_cast<std::size_t>(rows - 1)](depth, a, b, tile);
}

template <class T>
void tile_product_add(std::int64_t rows, std::int64_t depth, const T* a, const T* b, T* tile) {
  products<T, true>[static_cast<std::size_t>(rows - 1)](depth, a, b, tile);
}

template void tile_product(std::int64_t, std::int64_t, const float*, const float*, float*);
template void tile_product(std::int64_t, std::int64_t, const double*, const double*, double*);
template void tile_product_add(std::int64_t, std::int64_t, const float*, const float*, float*);
template void tile_product_add(std::int64_t, std::int64_t, const double*, const double*, double*);

}  // namespace trireme::cpu
