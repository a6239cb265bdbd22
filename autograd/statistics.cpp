// Variances and norms, and where the largest elements are.
#include <vector>

#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/reduced_dims.h"
#include "autograd/support.h"
#include "core/columns.h"

namespace trireme {
namespace {

/// y = sum((x - m)^2) / d over the dims where `kept` has extent 1, with m their mean and d = n - correction;
/// dx = 2 (x - m) dy / d. (The gradient through m is 0, because the x - m add up to 0.)
struct Variance : Op {
  static constexpr const char* name = "var";
  Shape kept;
  double count = 0, divisor = 0;
  Tensor x, mean;  // the mean in acc

  Tensor centered() const {
    Tensor c = Tensor::empty(x.shape(), mean.dtype(), x.device());
    kernels(x.device()).binary(Binary::subtract, cast(x, mean.dtype()), view::expand(mean, x.shape()), c);
    return c;
  }
  Tensor forward(const Tensor& input) {
    x = input;
    const KernelTable& k = kernels(x.device());
    mean = Tensor::empty(kept, accumulate_dtype(x), x.device());
    k.reduce(Reduction::sum, x, mean);
    k.axpby(1 / count, mean, 0, mean);
    Tensor squares = centered(), y = empty_like(mean);
    k.unary(Unary::square, squares, squares);
    k.reduce(Reduction::sum, squares, y);
    k.axpby(1 / divisor, y, 0, y);
    return cast(y, x.dtype());
  }
  Gradients backward(const Tensor& dy) const {
    const KernelTable& k = kernels(x.device());
    Tensor factor = clone(cast(dy, mean.dtype())), dx = centered();
    k.axpby(2 / divisor, factor, 0, factor);
    k.binary(Binary::multiply, dx, view::expand(factor, x.shape()), dx);
    return {cast(dx, gradient_dtype(0, x.dtype()))};
  }
};

/// y = sqrt(sum(x^2)) over the dims where `kept` has extent 1;  dx = x dy / y, and 0 where y is 0
struct Norm : Op {
  static constexpr const char* name = "norm";
  Shape kept;
  Tensor x, y;  // y in acc
  Tensor forward(const Tensor& input) {
    x = input;
    const KernelTable& k = kernels(x.device());
    const Tensor wide = contiguous(cast(x, accumulate_dtype(x)));
    Tensor squares = empty_like(wide);
    y = Tensor::empty(kept, wide.dtype(), x.device());
    k.unary(Unary::square, wide, squares);
    k.reduce(Reduction::sum, squares, y);
    k.unary(Unary::sqrt, y, y);
    return y.dtype() == x.dtype() ? clone(y) : cast(y, x.dtype());
  }
  Gradients backward(const Tensor& dy) const {
    const KernelTable& k = kernels(x.device());
    const Tensor zero = Tensor::zeros(y.shape(), y.dtype(), y.device());
    Tensor ratio = empty_like(y), factor = empty_like(y);
    Tensor dx = Tensor::empty(x.shape(), y.dtype(), x.device());
    k.binary(Binary::divide, cast(dy, y.dtype()), y, ratio);
    k.where(y, ratio, zero, factor);
    k.binary(Binary::multiply, cast(x, y.dtype()), view::expand(factor, x.shape()), dx);
    return {cast(dx, gradient_dtype(0, x.dtype()))};
  }
};

Tensor variance(const Tensor& input, const std::vector<int>& dims, double correction, bool keep_dims) {
  const Tensor x = in_f32(input);
  require_floating(Variance::name, x);
  const ReducedDims reduced(Variance::name, x, dims);
  Variance op;
  op.kept = reduced.kept;
  op.count = static_cast<double>(reduced.count);
  op.divisor = op.count - correction;
  require(op.divisor > 0, Variance::name, "{} elements with a correction of {}; expected more elements than that",
          reduced.count, correction);
  return reduced.result(apply(std::move(op), x), keep_dims);
}

/// The columns of the k largest along dim: x with dim last, and k in its place.
Tensor largest_columns(const Tensor& x, int dim, std::int64_t k) {
  const Tensor last = dim == x.dims() - 1 ? x : view::transpose(x, dim, -1);
  const Tensor rows = as_rows(last);
  Tensor columns = Tensor::empty({rows.size(0), k}, DType::i32, x.device());
  kernels(x.device()).top_k(rows, columns);
  return view::reshape(columns, last.shape().with(-1, k));
}

Tensor place_of_largest(const char* where, const Tensor& x, int given, bool keep_dim) {
  const int dim = checked_dim(where, x, given);
  require(x.size(dim) > 0, where, "dim {} of {} has no elements; expected at least one", given, x.shape());
  const Tensor columns = largest_columns(x, dim, 1);
  const Tensor kept = dim == x.dims() - 1 ? columns : contiguous(view::transpose(columns, dim, -1));
  return keep_dim ? kept : view::reshape(kept, kept.shape().without(dim));
}

}  // namespace

Tensor var(const Tensor& x) { return variance(x, all_dims(x), 1, false); }
Tensor var(const Tensor& x, const std::vector<int>& dims, double correction, bool keep_dims) {
  return variance(x, dims, correction, keep_dims);
}
Tensor var(const Tensor& x, int dim, double correction, bool keep_dim) {
  return variance(x, {dim}, correction, keep_dim);
}

Tensor norm(const Tensor& input, const std::vector<int>& dims, bool keep_dims) {
  const Tensor x = in_f32(input);
  require_floating(Norm::name, x);
  const ReducedDims reduced(Norm::name, x, dims);
  Norm op;
  op.kept = reduced.kept;
  return reduced.result(apply(std::move(op), x), keep_dims);
}
Tensor norm(const Tensor& x, int dim, bool keep_dim) { return norm(x, std::vector<int>{dim}, keep_dim); }
Tensor norm(const Tensor& x) {
  require_floating(Norm::name, x);
  return x.dims() == 0 ? abs(in_f32(x)) : norm(x, all_dims(x));
}

Tensor argmax(const Tensor& x, int dim, bool keep_dim) {
  require_floating("argmax", x);
  require_all_columns("argmax", x, checked_dim("argmax", x, dim));
  return place_of_largest("argmax", x.detach(), dim, keep_dim);
}

Tensor argmin(const Tensor& x, int dim, bool keep_dim) {
  require_floating("argmin", x);
  require_all_columns("argmin", x, checked_dim("argmin", x, dim));
  Tensor negated = empty_like(x);
  kernels(x.device()).axpby(-1.0, contiguous(x), 0.0, negated);
  return place_of_largest("argmin", negated, dim, keep_dim);
}

TopK topk(const Tensor& x, std::int64_t k, int dim) {
  require_floating("topk", x);
  const int along = checked_dim("topk", x, dim);
  require(x.size(along) > 0, "topk", "dim {} of {} has no elements; expected at least one", dim, x.shape());
  require(k >= 1 && k <= x.size(along), "topk", "the {} largest along dim {} of {}; expected 1 to {}", k, dim,
          x.shape(), x.size(along));
  require_all_columns("topk", x, along);
  const Tensor columns = largest_columns(x.detach(), along, k);
  const Tensor indices = along == x.dims() - 1 ? columns : contiguous(view::transpose(columns, along, -1));
  indices.set_extremes(0, static_cast<std::int32_t>(x.size(along) - 1));
  return {gather(x, along, indices), indices};
}

}  // namespace trireme
