#include "autograd/linear_gradients.h"

#include "autograd/deferred.h"
#include "autograd/support.h"

namespace trireme {
namespace {

Tensor product(const Tensor& x, const Tensor& dy, const Shape& shape, DType dtype, const Tensor& row_sums) {
  Tensor dw = Tensor::empty({dy.size(1), x.size(1)}, dtype, x.device());
  kernels(dy.device()).gemm(view::transpose(dy, 0, 1), x, dw, {.row_sums = row_sums});  // [out, N] @ [N, in]
  return view::reshape(dw, shape);
}

void accumulate(Leaf& leaf, const Tensor& x, const Tensor& dy, const Shape& shape, const Tensor& row_sums) {
  if (!leaf.sum().defined() || !leaf.sum().contiguous())
    return leaf.accumulate(product(x, dy, shape, leaf.gradient_dtype(), row_sums));
  Tensor sum = view::reshape(leaf.sum(), {dy.size(1), x.size(1)});
  kernels(dy.device()).gemm(view::transpose(dy, 0, 1), x, sum, {.beta = leaf.consume_beta(), .row_sums = row_sums});
}

Tensor bias_gradient(const Op& op, int input, const Tensor& dy) {
  Tensor db = Tensor::empty({1, dy.size(1)}, op.gradient_dtype(input, dy.dtype()), dy.device());
  kernels(dy.device()).reduce(Reduction::sum, dy, db);
  return db;
}

/// Whether the product of the weight's gradient computes the bias's as well. It must not run later than the bias's
/// gradient is needed, and gives sums in f32.
bool one_product(const Op& op, int weight, int bias, const Tensor& dy) {
  if (!op.needs(weight) || !op.needs(bias)) return false;
  if (dy.device() != Device::cuda || size_of(dy.dtype()) != 2) return false;
  if (op.gradient_dtype(bias, dy.dtype()) != DType::f32) return false;
  const auto deferred = [&op](int input) { return is_deferred(op.leaves[static_cast<std::size_t>(input)]); };
  return !deferred(weight) || deferred(bias);
}

}  // namespace

Tensor input_gradient(const Tensor& dy, const Tensor& weight, bool is_weight, const Shape& shape) {
  Tensor dx = Tensor::empty({dy.size(0), weight.size(1)}, dy.dtype(), dy.device());  // [N, in]
  kernels(dy.device()).gemm(dy, weight, dx, {.b_is_weight = is_weight});
  return view::reshape(dx, shape);
}

Tensor weight_gradient(const Op& op, int input, const Tensor& x, const Tensor& dy, const Shape& shape,
                       const Tensor& row_sums) {
  Leaf* const leaf = op.leaves[static_cast<std::size_t>(input)];
  if (leaf == nullptr) return product(x, dy, shape, op.gradient_dtype(input, x.dtype()), row_sums);
  add_weight_gradient(*leaf, [leaf, x, dy, shape, row_sums] { accumulate(*leaf, x, dy, shape, row_sums); });
  return {};
}

void layer_gradients(const Op& op, int weight, const Tensor& x, const Tensor& dy, const Shape& weight_shape,
                     const Shape& bias_shape, Gradients& gradients) {
  const int bias = weight + 1;
  const auto of = [&gradients](int input) -> Tensor& { return gradients[static_cast<std::size_t>(input)]; };
  Tensor db;  // [out]
  if (one_product(op, weight, bias, dy)) db = Tensor::empty({dy.size(1)}, DType::f32, dy.device());
  if (op.needs(weight)) of(weight) = weight_gradient(op, weight, x, dy, weight_shape, db);
  if (op.needs(bias)) of(bias) = view::reshape(db.defined() ? db : bias_gradient(op, bias, dy), bias_shape);
}

}  // namespace trireme
