// A product of few rows with a transposed matrix, y = x W^T: for generating text one token at a time.
//
// Every element of W is used only a few times, so the time is that of reading W, and copying it into panels first would
// double that. Each element of C is a dot product along memory instead: a vector of partial sums over K, added up in a
// fixed order at the end. Bytes: N K of W, once. Read next: gemm_packed.cpp, for everything larger.
#include <algorithm>

#include "core/cpu/dots.h"
#include "core/cpu/gemm_write.h"
#include "core/cpu/partition.h"
#include "core/parallel_for.h"

namespace trireme::cpu {
namespace {

constexpr std::int64_t most_rows = 8;
constexpr int row_group = vector_registers == 32 ? 4 : 2;  // dot products side by side, so that loads are shared
constexpr int column_group = 4;

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
        // The next group of columns follows in memory; some processors do not prefetch it at full speed by themselves.
        const std::int64_t ahead = i == 0 ? column_group * stride : 0;
        many ? dots<row_group, column_group>(depth, a + i * depth, b, stride, to, column_group, ahead)
             : dots<1, column_group>(depth, a + i * depth, b, stride, to, column_group, ahead);
        break;
      }
      many ? dots<row_group, 1>(depth, a + i * depth, b + j * stride, stride, to, column_group)
           : dots<1, 1>(depth, a + i * depth, b + j * stride, stride, to, column_group);
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
      arrange_for_dots<In>(p.a.columns, a + i * p.a.columns);
    }
    const std::int64_t groups = divide_up(p.c.columns, column_group);
    parallel_parts(useful_team(2 * p.c.rows * p.c.columns * p.a.columns, team), [&](int member, int members) {
      const IndexRange own = part_of(groups, members, member);
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
