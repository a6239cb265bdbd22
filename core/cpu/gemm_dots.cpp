// A product of few rows with a transposed matrix, y = x W^T: generating text one token at a time.
//
// Every element of W is used only a few times, so the time is that of reading W, and copying it into panels first would
// double that. Each element of C is a dot product along memory instead: a vector of partial sums over K, added up in a
// fixed order at the end. Bytes: N K of W, once. Read next: gemm_packed.cpp, for everything larger.
#include <algorithm>
#include <utility>

#include "core/cpu/gemm_write.h"
#include "core/cpu/partition.h"
#include "core/cpu/simd.h"
#include "core/parallel_for.h"

namespace trireme::cpu {
namespace {

constexpr std::int64_t most_rows = 8;
constexpr int row_group = vector_registers == 32 ? 4 : 2;  // dot products side by side, so that loads are shared
constexpr int column_group = 4;

/// Sum of all lanes, halves added to halves.
template <class T, int half = lanes<T> / 2>
T sum_lanes(Vector<T> x) {
  const Vector<T> other = [&]<int... lane>(std::integer_sequence<int, lane...>) {
    return __builtin_shufflevector(x, x, (lane ^ half)...);
  }
  (std::make_integer_sequence<int, lanes<T>>{});
  if constexpr (half == 1) {
    return (x + other)[0];
  } else {
    return sum_lanes<T, half / 2>(x + other);
  }
}

/// result[i * column_group + j] = dot(a row i, b row j) for rows x columns of them; b's rows are columns of B.
template <int rows, int columns, class T, class In>
void dots(std::int64_t depth, const T* a, const In* b, std::int64_t b_stride, T* result) {
  Vector<T> sum[rows][columns] = {};
  std::int64_t k = 0;
  for (; k + lanes<T> <= depth; k += lanes<T>) {
    Vector<T> row[rows];
#pragma GCC unroll 4
    for (int i = 0; i < rows; ++i) row[i] = load(a + i * depth + k);
#pragma GCC unroll 4
    for (int j = 0; j < columns; ++j) {
      const Vector<T> column = load(b + j * b_stride + k);
#pragma GCC unroll 4
      for (int i = 0; i < rows; ++i) sum[i][j] += row[i] * column;
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < columns; ++j) {
      T total = sum_lanes<T>(sum[i][j]);
      for (std::int64_t rest = k; rest < depth; ++rest)
        total += a[i * depth + rest] * static_cast<T>(b[j * b_stride + rest]);
      result[i * column_group + j] = total;
    }
  }
}

/// All rows of C in one group of columns; `a` is dense [M, K].
template <class T, class In, class Out>
void column_of_dots(const Product& p, const T* a, std::int64_t column) {
  const std::int64_t rows = p.c.rows, depth = p.a.columns,
                     columns = std::min<std::int64_t>(column_group, p.c.columns - column);
  const auto* b = static_cast<const In*>(p.b.at(0, column));
  const std::int64_t stride = p.b.column_stride;
  T result[most_rows * column_group];
  for (std::int64_t i = 0; i < rows;) {
    const bool many = rows - i >= row_group;
    for (std::int64_t j = 0; j < columns;) {
      T* to = result + i * column_group + j;
      if (columns == column_group) {
        many ? dots<row_group, column_group>(depth, a + i * depth, b, stride, to)
             : dots<1, column_group>(depth, a + i * depth, b, stride, to);
        break;
      }
      many ? dots<row_group, 1>(depth, a + i * depth, b + j * stride, stride, to)
           : dots<1, 1>(depth, a + i * depth, b + j * stride, stride, to);
      ++j;
    }
    i += many ? row_group : 1;
  }
  const auto* bias = p.bias == nullptr ? nullptr : static_cast<const In*>(p.bias) + column;
  for (std::int64_t i = 0; i < rows; ++i) {
    write_row(result + i * column_group, columns, static_cast<T>(p.alpha), static_cast<T>(p.beta), bias,
              static_cast<Out*>(p.c.at(i, column)));
  }
}

std::size_t workspace_bytes(const Product& p, int) {
  return static_cast<std::size_t>(p.a.rows * p.a.columns) * (p.a.dtype == DType::f64 ? sizeof(double) : sizeof(float));
}

void multiply(const Product& p, int team, std::byte* workspace) {
  visit_product(p, [&](auto in, auto out) {
    using In = typename decltype(in)::type;
    using Out = typename decltype(out)::type;
    using T = accumulate_t<In>;
    auto* a = reinterpret_cast<T*>(workspace);
    const auto* source = static_cast<const In*>(p.a.data);
    for (std::int64_t i = 0; i < p.a.rows; ++i) {
      for (std::int64_t k = 0; k < p.a.columns; ++k) {
        a[i * p.a.columns + k] = static_cast<T>(source[i * p.a.row_stride + k * p.a.column_stride]);
      }
    }
    const std::int64_t groups = divide_up(p.c.columns, column_group);
    parallel_parts(useful_team(2 * p.c.rows * p.c.columns * p.a.columns, team), [&](int member, int members) {
      const Range own = part_of(groups, members, member);
      for (std::int64_t group = own.begin; group < own.end; ++group) {
        column_of_dots<T, In, Out>(p, a, group * column_group);
      }
    });
  });
}

}  // namespace

bool suits_dots(const Product& product) {
  return product.c.rows <= most_rows && product.b.row_stride == 1 && product.b.column_stride != 1;
}

const ProductKernel dots_product = {multiply, workspace_bytes};

}  // namespace trireme::cpu
