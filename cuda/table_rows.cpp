// Entries of the kernel table that work on rows and heads: softmax, the largest of a row, embeddings, elements by an
// index, rotary positions, and joined attention. Their kernels: softmax.cu, top_k.cu, embedding.cu, gather.cu, rope.cu
// and attention_merge.cu of cuda/kernels.
#include "cuda/kernels/attention_merge.h"
#include "cuda/kernels/embedding.h"
#include "cuda/kernels/gather.h"
#include "cuda/kernels/rope.h"
#include "cuda/kernels/softmax.h"
#include "cuda/kernels/top_k.h"
#include "cuda/table_arguments.h"

namespace trireme::cuda {

void softmax(const Tensor& x, Tensor& y) {
  constexpr const char* entry = __func__;
  visit_training(entry, x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    softmax<T>(dense<T>(entry, x), dense<T>(entry, y), x.size(0), x.size(1), stream());
  });
}

void softmax_backward(const Tensor& y, const Tensor& dy, Tensor& dx) {
  constexpr const char* entry = __func__;
  visit_training(entry, y.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    softmax_backward<T>(dense<T>(entry, y), dense<T>(entry, dy), dense<T>(entry, dx), y.size(0), y.size(1), stream());
  });
}

void top_k(const Tensor& x, Tensor& chosen) {
  constexpr const char* entry = __func__;
  visit_training(entry, x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    top_k<T>(dense<T>(entry, x), dense<std::int32_t>(entry, chosen), x.size(0), x.size(1), chosen.size(1), stream());
  });
}

void embedding(const Tensor& weight, const Tensor& ids, std::int64_t first, Tensor& y) {
  constexpr const char* entry = __func__;
  visit_training(entry, weight.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    embedding<T>(dense<T>(entry, weight), dense<std::int32_t>(entry, ids), first, ids.count(), weight.size(0),
                 weight.size(1), dense<T>(entry, y), stream());
  });
}

void embedding_backward(const Tensor& dy, const Tensor& ids, std::int64_t first, Tensor& dweight) {
  constexpr const char* entry = __func__;
  visit_training(entry, dy.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    embedding_backward<T>(dense<T>(entry, dy), dense<std::int32_t>(entry, ids), first, ids.count(), dweight.size(0),
                          dweight.size(1), dense<float>(entry, dweight), stream());
  });
}

namespace {
IndexedDim indexed(const Tensor& x, int dim, const Tensor& index) {
  return {strided<1>(index.shape(), {x.strides().with(dim, 0)}), x.strides()[dim], x.size(dim)};
}
}  // namespace

void gather(const Tensor& x, int dim, const Tensor& index, Tensor& y) {
  constexpr const char* entry = __func__;
  visit_training(entry, x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    gather<T>(address<T>(entry, x), dense<std::int32_t>(entry, index), dense<T>(entry, y), indexed(x, dim, index),
              stream());
  });
}

void scatter_add(const Tensor& x, int dim, const Tensor& index, Tensor& y) {
  constexpr const char* entry = __func__;
  const Tensor places = workspace({size(entry, x.count())}, DType::i32);
  const std::int64_t here = size(entry, y.count());
  index_places(dense<std::int32_t>(entry, index), dense<std::int32_t>(entry, places), indexed(y, dim, index), stream());
  visit_training(entry, x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    embedding_backward<T>(dense<T>(entry, x), dense<std::int32_t>(entry, places), 0, x.count(), here, 1,
                          dense<float>(entry, y), stream());
  });
}

void rope(const Tensor& x, const Tensor& positions, const RopeOptions& options, bool inverse, Tensor& y) {
  constexpr const char* entry = __func__;
  const Tensor table = workspace({2, positions.count(), x.size(3) / 2}, DType::f32);  // [2, T or B T, Dh/2]
  visit_training(entry, x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    rope<T>({.batch = x.size(0),
             .tokens = x.size(1),
             .heads = x.size(2),
             .head_dim = x.size(3),
             .base = options.base,
             .inverse = inverse,
             .x = dense<T>(entry, x),
             .positions = dense<std::int32_t>(entry, positions),
             .table = dense<float>(entry, table),
             .y = dense<T>(entry, y),
             .position_count = positions.count(),
             .frequencies = options.frequencies.defined() ? dense<double>(entry, options.frequencies) : nullptr,
             .interleaved = options.interleaved},
            stream());
  });
}

void attention_merge(const Tensor& part, const Tensor& part_lse, Tensor& out, Tensor& lse) {
  constexpr const char* entry = __func__;
  const auto stride = [](const Tensor& x, int dim) { return x.strides()[dim]; };
  for (const Tensor* const x : {&part, static_cast<const Tensor*>(&out)})
    require(x->strides()[3] == 1 || x->size(3) == 1, entry, "{} with strides {}; expected 1 as the last", x->shape(),
            x->strides());
  visit_training(entry, part.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    attention_merge<T>({.batch = part.size(0),
                        .tokens = part.size(1),
                        .heads = part.size(2),
                        .width = part.size(3),
                        .part = address<T>(entry, part),
                        .part_stride = {stride(part, 0), stride(part, 1), stride(part, 2)},
                        .part_lse = address<float>(entry, part_lse),
                        .part_lse_stride = {stride(part_lse, 0), stride(part_lse, 1), stride(part_lse, 2)},
                        .out = address<float>(entry, out),
                        .out_stride = {stride(out, 0), stride(out, 1), stride(out, 2)},
                        .lse = address<float>(entry, lse),
                        .lse_stride = {stride(lse, 0), stride(lse, 1), stride(lse, 2)}},
                       stream());
  });
}

}  // namespace trireme::cuda
