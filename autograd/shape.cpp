// Operations without arithmetic: views, and copies of views.
// Read next: autograd/concat.cpp, autograd/parts.cpp.
#include <algorithm>
#include <span>
#include <vector>

#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/support.h"
#include "core/extents.h"

namespace trireme {
namespace {

/// y = x in another shape;  dx = dy in x's
struct Reshape : Op {
  static constexpr const char* name = "reshape";
  static constexpr bool keeps_f32 = true;
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
  static constexpr bool keeps_f32 = true;
  int a = 0, b = 1;
  Tensor forward(const Tensor& x) const { return view::transpose(x, a, b); }
  Gradients backward(const Tensor& dy) const { return {view::transpose(dy, a, b)}; }
};

/// y = x[start : start + length] along dim;  dx = dy there, 0 elsewhere
struct Slice : Op {
  static constexpr const char* name = "slice";
  static constexpr bool keeps_f32 = true;
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
  static constexpr bool keeps_f32 = true;
  Shape to, from;
  Tensor forward(const Tensor& x) {
    from = x.shape();
    return view::expand(x, to);
  }
  Gradients backward(const Tensor& dy) const { return {sum_to(dy, from, gradient_dtype(0, dy.dtype()))}; }
};

/// y = x with its dims in another order: dim i is dim order[i] of x;  dx = dy with its dims back in their order
struct Permute : Op {
  static constexpr const char* name = "permute";
  static constexpr bool keeps_f32 = true;
  std::vector<int> order;  // from 0 on
  Tensor forward(const Tensor& x) const { return view::permute(x, order); }
  Gradients backward(const Tensor& dy) const {
    std::vector<int> back(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) back[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
    return {view::permute(dy, back)};
  }
};

Shape with_one_at(const Shape& shape, int dim) {
  std::vector<std::int64_t> extents(shape.begin(), shape.end());
  extents.insert(extents.begin() + dim, 1);
  return Shape(std::span<const std::int64_t>(extents));
}
Tensor add_dim(const Tensor& x, int dim) {
  return x.as_strided(with_one_at(x.shape(), dim), with_one_at(x.strides(), dim), 0);
}
Tensor remove_dim(const Tensor& x, int dim) {
  return x.as_strided(x.shape().without(dim), x.strides().without(dim), 0);
}

/// y = x with a dim of size 1 before `dim`;  dx = dy without it
struct Unsqueeze : Op {
  static constexpr const char* name = "unsqueeze";
  static constexpr bool keeps_f32 = true;
  int dim = 0;
  Tensor forward(const Tensor& x) const { return add_dim(x, dim); }
  Gradients backward(const Tensor& dy) const { return {remove_dim(dy, dim)}; }
};

/// y = x without a dim of size 1;  dx = dy with it
struct Squeeze : Op {
  static constexpr const char* name = "squeeze";
  static constexpr bool keeps_f32 = true;
  int dim = 0;
  Tensor forward(const Tensor& x) const { return remove_dim(x, dim); }
  Gradients backward(const Tensor& dy) const { return {add_dim(dy, dim)}; }
};

/// y = [value.., x, value..] along dim;  dx = dy in the place of x
struct Pad : Op {
  static constexpr const char* name = "pad";
  static constexpr bool keeps_f32 = true;
  int dim = 0;
  std::int64_t before = 0, after = 0, length = 0;
  double value = 0;
  Tensor forward(const Tensor& x) {
    length = x.size(dim);
    const Tensor y = Tensor::empty(x.shape().with(dim, before + length + after), x.dtype(), x.device());
    Tensor first = view::slice(y, dim, 0, before), last = view::slice(y, dim, before + length, after);
    Tensor middle = view::slice(y, dim, before, length);
    kernels(x.device()).fill(first, value);
    copy(x, middle);
    kernels(x.device()).fill(last, value);
    return y;
  }
  Gradients backward(const Tensor& dy) const { return {view::slice(dy, dim, before, length)}; }
};

/// y = x with the indices of dim in reverse order;  dx = dy in reverse order
struct Flip : Op {
  static constexpr const char* name = "flip";
  static constexpr bool keeps_f32 = true;
  int dim = 0;
  Tensor reversed(const Tensor& x) const {
    const std::int64_t stride = x.strides()[dim], last = std::max<std::int64_t>(x.size(dim) - 1, 0);
    return clone(x.as_strided(x.shape(), x.strides().with(dim, -stride), last * stride));
  }
  Tensor forward(const Tensor& x) const { return reversed(x); }
  Gradients backward(const Tensor& dy) const { return {reversed(dy)}; }
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
  op.a = checked_dim(Transpose::name, x, a);
  op.b = checked_dim(Transpose::name, x, b);
  return apply(op, x);
}

Tensor slice(const Tensor& x, int dim, std::int64_t start, std::int64_t length) {
  Slice op;
  op.dim = checked_dim(Slice::name, x, dim);
  op.start = start;
  op.length = length;
  return apply(op, x);
}

Tensor select(const Tensor& x, int dim, std::int64_t index) {
  static_cast<void>(checked_dim("select", x, dim));
  require(index >= 0 && index < x.size(dim), "select", "index {} is outside dim {} of {}; expected 0 to {}", index, dim,
          x.shape(), x.size(dim) - 1);
  return reshape(slice(x, dim, index, 1), x.shape().without(dim));
}

Tensor expand(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  Expand op;
  op.to = shape;
  return apply(op, x);
}

Tensor permute(const Tensor& x, const std::vector<int>& dims) {
  static_cast<void>(view::permute(x, dims));  // refuses wrong dims
  Permute op;
  for (const int dim : dims) op.order.push_back(checked_dim("permute", x, dim));
  return apply(std::move(op), x);
}

Tensor unsqueeze(const Tensor& x, int dim) {
  require(dim >= -x.dims() - 1 && dim <= x.dims(), "unsqueeze", "no place {} for a new dim of {}; expected {} to {}",
          dim, x.shape(), -x.dims() - 1, x.dims());
  Unsqueeze op;
  op.dim = dim < 0 ? dim + x.dims() + 1 : dim;
  return apply(op, x);
}

Tensor squeeze(const Tensor& x, int dim) {
  Squeeze op;
  op.dim = checked_dim("squeeze", x, dim);
  require(x.size(dim) == 1, "squeeze", "dim {} of {} has size {}; expected 1; select takes one index of a dim", dim,
          x.shape(), x.size(dim));
  return apply(op, x);
}

Tensor flatten(const Tensor& x, int first, int last) {
  if (x.dims() == 0) return reshape(x, {1});
  const int begin = checked_dim("flatten", x, first), end = checked_dim("flatten", x, last);
  require(begin <= end, "flatten", "dims {} to {} of {}; expected the first before the last", first, last, x.shape());
  std::vector<std::int64_t> extents(x.shape().begin(), x.shape().begin() + begin);
  extents.push_back(1);
  for (int dim = begin; dim <= end; ++dim) extents.back() *= x.size(dim);
  extents.insert(extents.end(), x.shape().begin() + end + 1, x.shape().end());
  return reshape(x, Shape(std::span<const std::int64_t>(extents)));
}

Tensor pad(const Tensor& x, int dim, std::int64_t before, std::int64_t after, double value) {
  Pad op;
  op.dim = checked_dim("pad", x, dim);
  require(before >= 0 && after >= 0, "pad", "{} before and {} after; expected 0 or more; slice removes indices", before,
          after);
  require(before <= most_elements && after <= most_elements, "pad", "{} before and {} after; expected at most 2^48",
          before, after);  // their sum must not overflow
  op.before = before;
  op.after = after;
  op.value = value;
  return apply(op, x);
}

Tensor flip(const Tensor& x, int dim) {
  Flip op;
  op.dim = checked_dim("flip", x, dim);
  return apply(op, x);
}

}  // namespace trireme
