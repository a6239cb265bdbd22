// Operations without arithmetic: views, copies of views, concatenation.
#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/support.h"

namespace trireme {
namespace {

/// y = x in another shape;  dx = dy in x's
struct Reshape : Op {
  static constexpr const char* name = "reshape";
  static constexpr bool keeps_wide = true;
  Shape to, from;
  Tensor forward(const Tensor& x) {
    from = x.shape();
    return view::reshape(contiguous(x), to);
  }
  Gradients backward(const Tensor& dy) const { return {view::reshape(contiguous(dy), from)}; }
};

/// y = x with dims a and b exchanged;  dx = dy exchanged back
struct Transpose : Op {
  static constexpr const char* name = "transpose";
  static constexpr bool keeps_wide = true;
  int a = 0, b = 1;
  Tensor forward(const Tensor& x) const { return view::transpose(x, a, b); }
  Gradients backward(const Tensor& dy) const { return {view::transpose(dy, a, b)}; }
};

/// y = x[start : start + length] along dim;  dx = dy there, 0 elsewhere
struct Slice : Op {
  static constexpr const char* name = "slice";
  static constexpr bool keeps_wide = true;
  int dim = 0;
  std::int64_t start = 0, length = 0;
  Shape from;
  Tensor forward(const Tensor& x) {
    from = x.shape();
    return view::slice(x, dim, start, length);
  }
  Gradients backward(const Tensor& dy) const {
    const Tensor dx = Tensor::zeros(from, dy.dtype(), dy.device());
    Tensor part = view::slice(dx, dim, start, length);
    copy(dy, part);
    return {dx};
  }
};

/// y = x repeated along dims of extent 1;  dx = sum of dy over them
struct Expand : Op {
  static constexpr const char* name = "expand";
  static constexpr bool keeps_wide = true;
  Shape to, from;
  Tensor forward(const Tensor& x) {
    from = x.shape();
    return view::expand(x, to);
  }
  Gradients backward(const Tensor& dy) const { return {sum_to(dy, from, gradient_dtype(0, dy.dtype()))}; }
};

/// y = [a, b] along dim;  da, db = the parts of dy
struct Concat : Op {
  static constexpr const char* name = "concat";
  static constexpr bool keeps_wide = true;
  int dim = 0;
  std::int64_t split = 0;
  Tensor forward(const Tensor& a, const Tensor& b) {
    split = a.size(dim);
    Tensor y = Tensor::empty(a.shape().with(dim, split + b.size(dim)), a.dtype(), a.device());
    Tensor first = view::slice(y, dim, 0, split), second = view::slice(y, dim, split, b.size(dim));
    copy(a, first);
    copy(b, second);
    return y;
  }
  Gradients backward(const Tensor& dy) const {
    return {view::slice(dy, dim, 0, split), view::slice(dy, dim, split, dy.size(dim) - split)};
  }
};

}  // namespace

Tensor reshape(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  Reshape op;
  op.to = shape;
  return apply(op, x);
}

Tensor transpose(const Tensor& x, int a, int b) {
  Transpose op;
  op.a = positive_dim(x, a);
  op.b = positive_dim(x, b);
  return apply(op, x);
}

Tensor slice(const Tensor& x, int dim, std::int64_t start, std::int64_t length) {
  Slice op;
  op.dim = positive_dim(x, dim);
  op.start = start;
  op.length = length;
  return apply(op, x);
}

Tensor select(const Tensor& x, int dim, std::int64_t index) {
  return reshape(slice(x, dim, index, 1), x.shape().without(dim));
}

Tensor expand(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  Expand op;
  op.to = shape;
  return apply(op, x);
}

Tensor concat(const std::vector<Tensor>& parts, int dim) {
  require(!parts.empty(), "concat", "expected at least one tensor, got none");
  Tensor whole = parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    require(parts[i].dtype() == whole.dtype() && parts[i].shape().without(dim) == whole.shape().without(dim), "concat",
            "part {} is {} {}, which does not continue {} {} along dim {}", i, name(parts[i].dtype()), parts[i].shape(),
            name(whole.dtype()), whole.shape(), dim);
    Concat op;
    op.dim = positive_dim(whole, dim);
    whole = apply(op, whole, parts[i]);
  }
  return whole;
}

}  // namespace trireme
