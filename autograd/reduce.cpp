// Sums, means, maxima and minima, softmax, running sums.
// Read next: autograd/statistics.cpp, autograd/log_softmax.cpp.
#include <vector>

#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/reduced_dims.h"
#include "autograd/support.h"
#include "core/columns.h"

namespace trireme {
namespace {

/// y = factor * sum of x over the dims where `kept` has extent 1;  dx = factor dy repeated
struct Sum : Op {
  static constexpr const char* name = "sum";
  static constexpr bool keeps_f32 = true;
  Shape kept, from;
  double factor = 1;  // 1 / count for a mean, whose sum may be beyond the range of 16 bits
  Tensor forward(const Tensor& x) {
    from = x.shape();
    const KernelTable& k = kernels(x.device());
    Tensor y = Tensor::empty(kept, factor == 1 ? x.dtype() : accumulate_dtype(x), x.device());
    k.reduce(Reduction::sum, x, y);
    if (factor != 1) k.axpby(factor, y, 0.0, y);
    return cast(y, x.dtype());
  }
  Gradients backward(const Tensor& dy) const {
    if (factor == 1) return {view::expand(dy, from)};
    Tensor scaled = empty_like(dy);
    kernels(dy.device()).axpby(factor, contiguous(dy), 0.0, scaled);
    return {view::expand(scaled, from)};
  }
};

/// factor * the sum of all elements, []
Tensor sum_of_all(const Tensor& x, double factor) {
  Sum op;
  op.kept = x.shape();
  for (std::int64_t& extent : op.kept) extent = 1;
  op.factor = factor;
  return reshape(apply(op, x), Shape{});
}

/// y = max (min) of x over the dims where `kept` has extent 1;  dx = dy shared equally by the elements that equal y
template <bool largest>
struct Extremum : Op {
  static constexpr const char* name = largest ? "max" : "min";
  Shape kept;
  Tensor x, y;
  Tensor forward(const Tensor& input) {
    x = input;
    y = Tensor::empty(kept, x.dtype(), x.device());
    const KernelTable& k = kernels(x.device());
    if (largest) {
      k.reduce(Reduction::max, x, y);
    } else {  // -max(-x)
      Tensor negated = empty_like(x);
      k.axpby(-1.0, contiguous(x), 0.0, negated);
      k.reduce(Reduction::max, negated, y);
      k.axpby(-1.0, y, 0.0, y);
    }
    return y;
  }
  Gradients backward(const Tensor& dy) const {
    const KernelTable& k = kernels(x.device());
    Tensor winners = empty_like(x), ties = empty_like(y), share = empty_like(y), dx = empty_like(x);
    k.binary(Binary::equal, x, view::expand(y, x.shape()), winners);
    k.reduce(Reduction::sum, winners, ties);
    k.binary(Binary::divide, dy, ties, share);
    k.binary(Binary::multiply, winners, view::expand(share, x.shape()), dx);
    return {dx};
  }
};

/// y[i] = sum of x[j] over j <= i along dim;  dx[j] = sum of dy[i] over i >= j
struct Cumsum : Op {
  static constexpr const char* name = "cumsum";
  static constexpr bool keeps_f32 = true;
  int dim = 0;
  Tensor run(const Tensor& x, bool reverse) const {
    std::int64_t before = 1, after = 1;
    for (int i = 0; i < x.dims(); ++i) (i < dim ? before : after) *= i == dim ? 1 : x.size(i);
    const Shape matrices = {before, x.size(dim), after};
    const Tensor y = empty_like(x);
    Tensor sums = view::reshape(y, matrices);
    kernels(x.device()).cumsum(view::reshape(contiguous(x), matrices), reverse, sums);
    return y;
  }
  Tensor forward(const Tensor& x) const { return run(x, false); }
  Gradients backward(const Tensor& dy) const { return {run(dy, true)}; }
};

/// y = softmax(x) over the last dim;  dx = y (dy - sum(y dy))
struct Softmax : Op {
  static constexpr const char* name = "softmax";
  Tensor y;
  Tensor forward(const Tensor& x) {
    y = empty_like(x);
    Tensor rows = as_rows(y);
    kernels(x.device()).softmax(as_rows(x), rows);
    return y;
  }
  Gradients backward(const Tensor& dy) const {
    const Tensor dx = empty_like(y);
    Tensor rows = as_rows(dx);
    kernels(y.device()).softmax_backward(as_rows(y), as_rows(dy), rows);
    return {dx};
  }
};

template <bool largest>
Tensor extremum(const Tensor& x, const std::vector<int>& dims, bool keep_dims) {
  using Operation = Extremum<largest>;
  require_floating(Operation::name, x);
  const ReducedDims reduced(Operation::name, x, dims);
  if (dims.size() == 1)
    require(reduced.count > 0, Operation::name, "dim {} of {} has no elements; expected at least one", dims[0],
            x.shape());
  require(reduced.count > 0, Operation::name, "{} has no elements to choose from; expected at least one", x.shape());
  Operation op;
  op.kept = reduced.kept;
  return reduced.result(apply(std::move(op), x), keep_dims);
}

template <bool largest>
Tensor extremum(const Tensor& x) {
  require_floating(Extremum<largest>::name, x);
  return x.dims() == 0 ? x : extremum<largest>(x, all_dims(x), false);
}

/// The same over another dim, with kernels that need no copies in another order; in acc.
struct SoftmaxOver : Op {
  static constexpr const char* name = "softmax";
  int dim = 0;
  Tensor y;
  Tensor total(Reduction reduction, const Tensor& x) const {
    Tensor result = Tensor::empty(x.shape().with(dim, 1), accumulate_dtype(x), x.device());
    kernels(x.device()).reduce(reduction, x, result);
    return result;
  }
  Tensor forward(const Tensor& x) {
    const KernelTable& k = kernels(x.device());
    Tensor e = Tensor::empty(x.shape(), accumulate_dtype(x), x.device());
    k.binary(Binary::subtract, cast(x, e.dtype()), view::expand(total(Reduction::max, x), x.shape()), e);
    k.unary(Unary::exp, e, e);
    k.binary(Binary::divide, e, view::expand(total(Reduction::sum, e), x.shape()), e);
    y = cast(e, x.dtype());
    return y;
  }
  Gradients backward(const Tensor& gradient) const {
    const KernelTable& k = kernels(y.device());
    const Tensor wide_y = cast(y, accumulate_dtype(y)), dy = cast(gradient, wide_y.dtype());
    Tensor dx = empty_like(wide_y);
    k.binary(Binary::multiply, wide_y, dy, dx);
    k.binary(Binary::subtract, dy, view::expand(total(Reduction::sum, dx), dx.shape()), dx);
    k.binary(Binary::multiply, dx, wide_y, dx);
    return {cast(dx, y.dtype())};
  }
};

}  // namespace

Tensor sum(const Tensor& input) {
  const Tensor x = in_f32(input);
  require_floating(Sum::name, x);
  return sum_of_all(x, 1);
}

Tensor sum(const Tensor& input, const std::vector<int>& dims, bool keep_dims) {
  const Tensor x = in_f32(input);
  require_floating(Sum::name, x);
  const ReducedDims reduced("sum", x, dims);
  Sum op;
  op.kept = reduced.kept;
  return reduced.result(apply(op, x), keep_dims);
}
Tensor sum(const Tensor& x, int dim, bool keep_dim) { return sum(x, std::vector<int>{dim}, keep_dim); }

Tensor mean(const Tensor& input) {
  const Tensor x = in_f32(input);
  require_floating("mean", x);
  require(x.count() > 0, "mean", "{} has no elements; expected at least one", x.shape());
  return sum_of_all(x, 1.0 / static_cast<double>(x.count()));
}

Tensor mean(const Tensor& input, const std::vector<int>& dims, bool keep_dims) {
  const Tensor x = in_f32(input);
  require_floating("mean", x);
  const ReducedDims reduced("mean", x, dims);
  require(reduced.count > 0, "mean", "{} has no elements along the dims of the mean; expected at least one", x.shape());
  Sum op;
  op.kept = reduced.kept;
  op.factor = 1.0 / static_cast<double>(reduced.count);
  return reduced.result(apply(op, x), keep_dims);
}

Tensor mean(const Tensor& x, int dim, bool keep_dim) {
  require_floating("mean", x);
  require(x.size(checked_dim("mean", x, dim)) > 0, "mean", "dim {} of {} has no elements; expected at least one", dim,
          x.shape());
  return mean(x, std::vector<int>{dim}, keep_dim);
}

Tensor max(const Tensor& x) { return extremum<true>(x); }
Tensor max(const Tensor& x, const std::vector<int>& dims, bool keep_dims) { return extremum<true>(x, dims, keep_dims); }
Tensor max(const Tensor& x, int dim, bool keep_dim) { return extremum<true>(x, std::vector<int>{dim}, keep_dim); }
Tensor min(const Tensor& x) { return extremum<false>(x); }
Tensor min(const Tensor& x, const std::vector<int>& dims, bool keep_dims) {
  return extremum<false>(x, dims, keep_dims);
}
Tensor min(const Tensor& x, int dim, bool keep_dim) { return extremum<false>(x, std::vector<int>{dim}, keep_dim); }

Tensor softmax(const Tensor& input, int dim) {
  const Tensor x = in_f32(input);
  require_floating(Softmax::name, x);
  const int along = checked_dim("softmax", x, dim);
  require_all_columns(Softmax::name, x, along);
  if (along == x.dims() - 1 || x.count() == 0) return with_columns_of(x, apply(Softmax{}, x));
  SoftmaxOver op;
  op.dim = along;
  return apply(std::move(op), x);
}

Tensor cumsum(const Tensor& input, int dim) {
  const Tensor x = in_f32(input);
  require_floating(Cumsum::name, x);
  Cumsum op;
  op.dim = checked_dim("cumsum", x, dim);
  return apply(op, x);
}

}  // namespace trireme
