// The products of a mixture of experts: rows are sorted by group; each group's rows are multiplied by the group's own
// matrix, or their products are summed into one. 2 R K N FLOPs over all groups.
//
// A large product is computed by all threads together. Small ones (a model with many experts has many of them) are
// computed in one pass, each by one thread: waking the team once for each would cost more than it saves. A product's
// bits do not depend on the number of its threads, so they do not depend on how groups are shared out.
// Read next: core/cpu/gemm.h.
#include <algorithm>
#include <vector>

#include "core/cpu/gemm.h"
#include "core/cpu/kernels.h"
#include "core/cpu/partition.h"
#include "core/parallel_for.h"

namespace trireme::cpu {
namespace {

constexpr std::int64_t large_flops = 1 << 24;  // some 200 us of one core's work

std::int64_t flops(const Product& p) { return 2 * p.c.rows * p.c.columns * p.a.columns; }

/// Memory for several products at a time, and the bytes of it that each may use.
struct Workspace {
  Tensor memory;
  std::int64_t each;
  std::byte* of(std::int64_t member) const {
    return reinterpret_cast<std::byte*>(memory.data<std::uint8_t>() + member * each);
  }
};

Workspace workspace_for(const std::vector<Product>& products, int team_of_each, int teams) {
  std::size_t most = 0;
  for (const Product& product : products)
    most = std::max(most, selected_product().workspace_bytes(product, team_of_each));
  const auto each = static_cast<std::int64_t>((most + 63) / 64 * 64);
  const MemoryScope scope(MemoryCategory::workspace);
  return {Tensor::empty({each * teams}, DType::u8), each};
}

/// Each by the whole team, one after the other.
void multiply_together(const std::vector<Product>& products) {
  const int team = threads();
  const Workspace workspace = workspace_for(products, team, 1);
  for (const Product& product : products) selected_product().multiply(product, team, workspace.of(0));
}

/// Each by one thread: every thread takes a run of products with about the same number of FLOPs.
void multiply_apart(const std::vector<Product>& products) {
  std::vector<std::int64_t> ends;  // FLOPs up to the end of each
  std::int64_t all = 0;
  for (const Product& product : products) ends.push_back(all += flops(product));
  const int team = useful_team(all, threads());
  const Workspace workspace = workspace_for(products, 1, team);
  parallel_parts(team, [&](int member, int members) {
    for (std::size_t i = 0; i < products.size(); ++i) {
      const std::int64_t middle = ends[i] - flops(products[i]) / 2;
      const std::int64_t taker = std::min<std::int64_t>(members - 1, middle * members / std::max<std::int64_t>(all, 1));
      if (taker == member) selected_product().multiply(products[i], 1, workspace.of(member));
    }
  });
}

void multiply_all(const std::vector<Product>& products) {
  std::vector<Product> large, small;
  for (const Product& product : products) (flops(product) >= large_flops ? large : small).push_back(product);
  if (!large.empty()) multiply_together(large);
  if (!small.empty()) multiply_apart(small);
}

/// Rows [begin, end) of a dense matrix.
MatrixView rows_of(const Tensor& x, std::int64_t begin, std::int64_t end) {
  const MatrixView all{x.raw(), x.dtype(), x.size(0), x.size(1), x.size(1), 1};
  return all.block(begin, 0, end - begin, x.size(1));
}

MatrixView transposed(const MatrixView& x) {
  return {x.data, x.dtype, x.columns, x.rows, x.column_stride, x.row_stride};
}

/// Matrix g of [G, rows, columns].
MatrixView matrix_of(const Tensor& x, std::int64_t g) {
  auto* const first =
      static_cast<std::byte*>(x.raw()) + g * x.strides()[0] * static_cast<std::int64_t>(size_of(x.dtype()));
  return {first, x.dtype(), x.size(1), x.size(2), x.strides()[1], x.strides()[2]};
}

}  // namespace

void grouped_gemm(const Tensor& x, const Tensor& matrices, const Tensor& bias, std::span<const std::int64_t> starts,
                  Tensor& y) {
  if (y.count() == 0) return;
  std::vector<Product> products;
  for (std::size_t g = 0; g + 1 < starts.size(); ++g) {
    if (starts[g] == starts[g + 1]) continue;
    const auto group = static_cast<std::int64_t>(g);
    Product product{.a = rows_of(x, starts[g], starts[g + 1]),
                    .b = matrix_of(matrices, group),
                    .c = rows_of(y, starts[g], starts[g + 1])};
    if (bias.defined()) product.bias = rows_of(bias, group, group + 1).data;
    products.push_back(product);
  }
  multiply_all(products);
}

void grouped_gemm_tn(const Tensor& a, const Tensor& b, std::span<const std::int64_t> starts, bool accumulate,
                     Tensor& c) {
  if (c.count() == 0) return;
  std::vector<Product> products;
  for (std::size_t g = 0; g + 1 < starts.size(); ++g) {
    if (starts[g] == starts[g + 1] && accumulate) continue;
    products.push_back({.a = transposed(rows_of(a, starts[g], starts[g + 1])),
                        .b = rows_of(b, starts[g], starts[g + 1]),
                        .c = matrix_of(c, static_cast<std::int64_t>(g)),
                        .beta = accumulate ? 1.0 : 0.0});
  }
  multiply_all(products);
}

}  // namespace trireme::cpu
