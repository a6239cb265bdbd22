#include "autograd/deferred.h"
#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/support.h"
#include "core/ids.h"

namespace trireme {
namespace {

/// y[n] = weight[ids[n] - first];  dweight[ids[n] - first] += dy[n], in the order of n; may be deferred (deferred.h)
struct Embedding : Op {
  static constexpr const char* name = "embedding";
  Tensor ids;  // [N]
  std::int64_t first = 0;
  Shape weight_shape;
  DType weight_dtype = DType::f32;

  Tensor forward(const Tensor& weight) {
    weight_shape = weight.shape();
    weight_dtype = weight.dtype();
    Tensor y = Tensor::empty({ids.count(), weight.size(1)}, weight.dtype(), weight.device());  // [N, D]
    kernels(weight.device()).embedding(contiguous(weight), ids, first, y);
    return y;
  }

  Gradients backward(const Tensor& dy) const {
    Leaf* leaf = leaves[0];
    if (leaf == nullptr) return {sum_of_rows(dy)};
    add_weight_gradient(*leaf, [leaf, dy, op = *this] {
      if (leaf->grad().defined() && leaf->grad().dtype() == op.wide() && leaf->grad().contiguous()) {
        kernels(dy.device()).embedding_backward(contiguous(dy), op.ids, op.first, leaf->grad());
      } else {
        leaf->accumulate(op.sum_of_rows(dy));
      }
    });
    return {Tensor()};
  }

  DType wide() const { return weight_dtype == DType::f64 ? DType::f64 : DType::f32; }
  Tensor sum_of_rows(const Tensor& dy) const {
    Tensor dweight = Tensor::zeros(weight_shape, wide(), dy.device());
    kernels(dy.device()).embedding_backward(contiguous(dy), ids, first, dweight);
    return dweight;
  }
};

}  // namespace

Tensor embedding(const Tensor& weight, const Tensor& ids) {
  require(weight.dims() == 2, "embedding", "expected a weight [V, D], got {}", weight.shape());
  check_ids("embedding", "id", ids, {.first = 0, .end = weight.size(0)},
            "change the ids, or the number of rows of the weight; with a weight that is a part of a larger one, say "
            "which of its rows is the first");
  return embedding(weight, ids, 0);
}

Tensor embedding(const Tensor& weight, const Tensor& ids, std::int64_t first) {
  require(weight.dims() == 2, "embedding", "expected a weight [V, D], got {}", weight.shape());
  require(ids.dtype() == DType::i32, "embedding", "expected i32 ids, got {}; convert with cast(ids, DType::i32)",
          name(ids.dtype()));
  Embedding op;
  op.ids = view::reshape(contiguous(ids), {ids.count()}).to(weight.device());
  op.saved.add(op.ids, "ids");
  op.first = first;
  const Tensor rows = apply(std::move(op), weight);  // [N, D]
  std::vector<std::int64_t> extents(ids.shape().begin(), ids.shape().end());
  extents.push_back(weight.size(1));
  return reshape(rows, Shape(std::span<const std::int64_t>(extents)));
}

}  // namespace trireme
