// Grouped products of the kernel table: rows of a mixture of experts, sorted by group.
//
// In 16 bits one launch does all groups; it finds their rows from offsets in device memory. In f32, and with a library
// selected by name that has no such product, each group is a separate product: table_products.cpp.
// Read next: cuda/implementations.h, which chooses the kernel.
#include <type_traits>
#include <vector>

#include "cuda/implementations.h"
#include "cuda/table_arguments.h"

namespace trireme::cuda {
namespace {

using Starts = std::span<const std::int64_t>;

/// The offsets in device memory, as the kernels read them.
Tensor offsets_of(const char* entry, Starts starts) {
  std::vector<std::int32_t> offsets;
  for (const std::int64_t start : starts) offsets.push_back(size(entry, start));
  const MemoryScope scope(MemoryCategory::workspace);
  return Tensor::from<std::int32_t>(offsets, {static_cast<std::int64_t>(offsets.size())}).to(Device::cuda);  // [G + 1]
}

/// Calls each(g, first row, rows) for every group.
template <class Each>
void for_each_group(Starts starts, const Each& each) {
  for (std::size_t g = 0; g + 1 < starts.size(); ++g)
    each(static_cast<std::int64_t>(g), starts[g], starts[g + 1] - starts[g]);
}

template <class T, class Out>
void run(const char* entry, const Gemm<T, Out>& product, Starts starts) {
  const Tensor offsets = offsets_of(entry, starts);
  const GroupedGemm<T, Out> products = {product, size(entry, offsets.count() - 1), dense<std::int32_t>(entry, offsets)};
  implementation_for(products).run(products, stream());
}

// ---- grouped_gemm: groups of rows of c ------------------------------------------------------------------------------

constexpr const char* kRows = "grouped_gemm";

template <class T>
void rows_at_once(const Tensor& x, const Tensor& matrices, const Tensor& bias, Starts starts, Tensor& y) {
  const bool transposed = matrices.strides()[2] != 1 && matrices.size(2) != 1;  // the matrices as they are stored
  require(!transposed || matrices.strides()[1] == 1 || matrices.size(1) == 1, kRows,
          "matrices {} with strides {}; expected 1 as one of the last two", matrices.shape(), matrices.strides());
  Gemm<T, T> product{.form = transposed ? Form::nt : Form::nn,
                     .m = size(kRows, y.size(0)),
                     .n = size(kRows, y.size(1)),
                     .k = size(kRows, x.size(1)),
                     .a = dense<T>(kRows, x),
                     .a_pitch = x.size(1),
                     .b = address<T>(kRows, matrices),
                     .b_pitch = matrices.strides()[transposed ? 2 : 1],
                     .c = dense<T>(kRows, y),
                     .c_pitch = y.size(1)};
  product.b_stride = matrices.strides()[0];
  product.epilogue.bias = dense<T>(kRows, bias);
  run(kRows, product, starts);
}

void rows_group_by_group(const Tensor& x, const Tensor& matrices, const Tensor& bias, Starts starts, Tensor& y) {
  for_each_group(starts, [&](std::int64_t g, std::int64_t first, std::int64_t count) {
    if (count == 0) return;
    Tensor part = view::slice(y, 0, first, count);
    gemm(view::slice(x, 0, first, count), view::select(matrices, 0, g), part,
         {.bias = bias.defined() ? view::select(bias, 0, g) : Tensor()});
  });
}

// ---- grouped_gemm_tn: groups of the summed dim ----------------------------------------------------------------------

constexpr const char* kSums = "grouped_gemm_tn";

template <class T, class Out>
void sums_at_once(const Tensor& a, const Tensor& b, Starts starts, bool accumulate, Tensor& c) {
  Gemm<T, Out> product{.form = Form::tn,
                       .m = size(kSums, c.size(1)),
                       .n = size(kSums, c.size(2)),
                       .k = size(kSums, a.size(0)),
                       .a = dense<T>(kSums, a),
                       .a_pitch = a.size(1),
                       .b = dense<T>(kSums, b),
                       .b_pitch = b.size(1),
                       .c = dense<Out>(kSums, c),
                       .c_pitch = c.size(2)};
  product.c_stride = c.strides()[0];
  product.epilogue.accumulate = accumulate;
  run(kSums, product, starts);
}

void sums_group_by_group(const Tensor& a, const Tensor& b, Starts starts, bool accumulate, Tensor& c) {
  for_each_group(starts, [&](std::int64_t g, std::int64_t first, std::int64_t count) {
    Tensor part = view::select(c, 0, g);
    if (count == 0) {
      if (!accumulate) fill(part, 0);
      return;
    }
    gemm(view::transpose(view::slice(a, 0, first, count), 0, 1), view::slice(b, 0, first, count), part,
         {.beta = accumulate ? 1.0 : 0.0});
  });
}

}  // namespace

void grouped_gemm(const Tensor& x, const Tensor& matrices, const Tensor& bias, Starts starts, Tensor& y) {
  require_one_device(kRows, {&y, &x, &matrices, &bias});
  if (y.count() == 0) return;
  visit_training(kRows, x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_same_v<T, float>) {
      if (selection_has<GroupedGemm<T, T>>()) return rows_at_once<T>(x, matrices, bias, starts, y);
    }
    rows_group_by_group(x, matrices, bias, starts, y);
  });
}

void grouped_gemm_tn(const Tensor& a, const Tensor& b, Starts starts, bool accumulate, Tensor& c) {
  require_one_device(kSums, {&c, &a, &b});
  if (c.count() == 0) return;
  visit_training(kSums, a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_same_v<T, float>) {
      if (selection_has<GroupedGemm<T, T>>()) {
        return c.dtype() == DType::f32 ? sums_at_once<T, float>(a, b, starts, accumulate, c)
                                       : sums_at_once<T, T>(a, b, starts, accumulate, c);
      }
    }
    sums_group_by_group(a, b, starts, accumulate, c);
  });
}

}  // namespace trireme::cuda
