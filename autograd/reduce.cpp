// Sums, means, maxima and softmax.
#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/support.h"

namespace trireme {
namespace {

/// y = sum of x over the dims where `kept` has extent 1;  dx = dy repeated
struct Sum : Op {
  static constexpr const char* name = "sum";
  static constexpr bool keeps_wide = true;
  Shape kept, from;
  Tensor forward(const Tensor& x) {
    from = x.shape();
    Tensor y = Tensor::empty(kept, x.dtype(), x.device());
    kernels(x.device()).reduce(Reduction::sum, x, y);
    return y;
  }
  Gradients backward(const Tensor& dy) const { return {view::expand(dy, from)}; }
};

/// y = max of x over the dims where `kept` has extent 1;  dx = dy shared equally by the elements that equal y
struct Max : Op {
  static constexpr const char* name = "max";
  Shape kept;
  Tensor x, y;
  Tensor forward(const Tensor& input) {
    x = input;
    y = Tensor::empty(kept, x.dtype(), x.device());
    kernels(x.device()).reduce(Reduction::max, x, y);
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

Tensor drop_dim(const Tensor& kept, int dim, bool keep_dim) {
  return keep_dim ? kept : reshape(kept, kept.shape().without(dim));
}

}  // namespace

Tensor sum(const Tensor& x) {
  Sum op;
  op.kept = x.shape();
  for (std::int64_t& extent : op.kept) extent = 1;
  return reshape(apply(op, x), Shape{});
}

Tensor sum(const Tensor& x, int dim, bool keep_dim) {
  Sum op;
  op.kept = x.shape().with(dim, 1);
  return drop_dim(apply(op, x), dim, keep_dim);
}

Tensor mean(const Tensor& x) { return scale(sum(x), 1.0 / static_cast<double>(x.count())); }

Tensor mean(const Tensor& x, int dim, bool keep_dim) {
  return scale(sum(x, dim, keep_dim), 1.0 / static_cast<double>(x.size(dim)));
}

Tensor max(const Tensor& x, int dim, bool keep_dim) {
  Max op;
  op.kept = x.shape().with(dim, 1);
  return drop_dim(apply(op, x), dim, keep_dim);
}

Tensor softmax(const Tensor& x) { return apply(Softmax{}, x); }

}  // namespace trireme
