#include "autograd/linear_gradients.h"

#include "autograd/deferred.h"
#include "autograd/support.h"

namespace trireme {
namespace {

Tensor product(const Tensor& x, const Tensor& dy, const Shape& shape, DType dtype) {
  Tensor dw = Tensor::empty({dy.size(1), x.size(1)}, dtype, x.device());
  kernels(dy.device()).gemm(view::transpose(dy, 0, 1), x, dw, {});  // [out, N] @ [N, in]
  return view::reshape(dw, shape);
}

void accumulate(Leaf& leaf, const Tensor& x, const Tensor& dy, const Shape& shape) {
  if (!leaf.sum().defined() || !leaf.sum().contiguous())
    return leaf.accumulate(product(x, dy, shape, leaf.gradient_dtype()));
  Tensor sum = view::reshape(leaf.sum(), {dy.size(1), x.size(1)});
  kernels(dy.device()).gemm(view::transpose(dy, 0, 1), x, sum, {.beta = leaf.take_beta()});
}

}  // namespace

Tensor input_gradient(const Tensor& dy, const Tensor& weight, bool is_weight, const Shape& shape) {
  Tensor dx = Tensor::empty({dy.size(0), weight.size(1)}, dy.dtype(), dy.device());  // [N, in]
  kernels(dy.device()).gemm(dy, weight, dx, {.b_is_weight = is_weight});
  return view::reshape(dx, shape);
}

Tensor weight_gradient(const Op& op, int input, const Tensor& x, const Tensor& dy, const Shape& shape) {
  Leaf* const leaf = op.leaves[static_cast<std::size_t>(input)];
  if (leaf == nullptr) return product(x, dy, shape, op.gradient_dtype(input, x.dtype()));
  add_weight_gradient(*leaf, [leaf, x, dy, shape] { accumulate(*leaf, x, dy, shape); });
  return {};
}

Tensor bias_gradient(const Op& op, int input, const Tensor& dy, const Shape& shape) {
  Tensor db = Tensor::empty({1, dy.size(1)}, op.gradient_dtype(input, dy.dtype()), dy.device());
  kernels(dy.device()).reduce(Reduction::sum, dy, db);
  return view::reshape(db, shape);
}

}  // namespace trireme
