// Elementwise operations, with broadcasting. An input that was broadcast gets the sum of its gradient over the dims it
// was repeated along.
#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/support.h"
#include "autograd/whole_numbers.h"
#include "core/columns.h"

namespace trireme {
namespace {

Tensor binary(Binary op, const Tensor& a, const Tensor& b, const char* where) {
  require_floating(where, a);
  require_floating(where, b);
  require(a.dtype() == b.dtype(), where, "dtypes differ: {} and {}; cast_to one of them", name(a.dtype()),
          name(b.dtype()));
  const Shape shape = broadcast_shape(a.shape(), b.shape(), where);
  Tensor y = Tensor::empty(shape, a.dtype(), a.device());
  kernels(a.device()).binary(op, view::expand(a, shape), view::expand(b, shape), y);
  return with_columns_of(a, b, y);
}

/// The same in `dtype`, to which a and b are converted first.
Tensor binary_in(DType dtype, Binary op, const Tensor& a, const Tensor& b, const char* where) {
  return binary(op, cast(a, dtype), cast(b, dtype), where);
}

Tensor scaled(const Tensor& x, double factor) {
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  kernels(x.device()).axpby(factor, contiguous(x), 0.0, y);
  return with_columns_of(x, y);
}

/// y = a + b;  da = dy, db = dy
struct Add : Op {
  static constexpr const char* name = "add";
  static constexpr bool keeps_f32 = true;
  Shape shape_a, shape_b;
  Tensor forward(const Tensor& a, const Tensor& b) {
    shape_a = a.shape();
    shape_b = b.shape();
    return binary(Binary::add, a, b, name);
  }
  Gradients backward(const Tensor& dy) const {
    return {needs(0) ? sum_to(dy, shape_a, gradient_dtype(0, dy.dtype())) : Tensor(),
            needs(1) ? sum_to(dy, shape_b, gradient_dtype(1, dy.dtype())) : Tensor()};
  }
};

/// y = a - b;  da = dy, db = -dy
struct Subtract : Op {
  static constexpr const char* name = "subtract";
  static constexpr bool keeps_f32 = true;
  Shape shape_a, shape_b;
  Tensor forward(const Tensor& a, const Tensor& b) {
    shape_a = a.shape();
    shape_b = b.shape();
    return binary(Binary::subtract, a, b, name);
  }
  Gradients backward(const Tensor& dy) const {
    return {needs(0) ? sum_to(dy, shape_a, gradient_dtype(0, dy.dtype())) : Tensor(),
            needs(1) ? sum_to(scaled(dy, -1.0), shape_b, gradient_dtype(1, dy.dtype())) : Tensor()};
  }
};

/// y = a b;  da = dy b, db = dy a
struct Multiply : Op {
  static constexpr const char* name = "multiply";
  static constexpr bool keeps_f32 = true;
  Tensor a, b;
  Tensor forward(const Tensor& left, const Tensor& right) {
    a = left;
    b = right;
    return binary(Binary::multiply, a, b, name);
  }
  Gradients backward(const Tensor& dy) const {
    const auto product = [&](int input, const Tensor& other, const Shape& shape) {
      const DType dtype = gradient_dtype(input, dy.dtype());
      return needs(input) ? sum_to(binary_in(dtype, Binary::multiply, dy, other, name), shape, dtype) : Tensor();
    };
    return {product(0, b, a.shape()), product(1, a, b.shape())};
  }
};

/// y = a / b;  da = dy / b, db = -dy a / b^2
struct Divide : Op {
  static constexpr const char* name = "divide";
  static constexpr bool keeps_f32 = true;
  Tensor a, b;
  Tensor forward(const Tensor& left, const Tensor& right) {
    a = left;
    b = right;
    return binary(Binary::divide, a, b, name);
  }
  Gradients backward(const Tensor& dy) const {
    Gradients gradients(2);
    if (needs(0)) {
      const DType dtype = gradient_dtype(0, dy.dtype());
      gradients[0] = sum_to(binary_in(dtype, Binary::divide, dy, b, name), a.shape(), dtype);
    }
    if (needs(1)) {
      const DType dtype = gradient_dtype(1, dy.dtype());
      const Tensor da = binary_in(dtype, Binary::divide, dy, b, name);
      const Tensor ratio = binary_in(dtype, Binary::divide, a, b, name);
      gradients[1] = sum_to(scaled(binary(Binary::multiply, da, ratio, name), -1.0), b.shape(), dtype);
    }
    return gradients;
  }
};

/// y = factor x;  dx = factor dy
struct Scale : Op {
  static constexpr const char* name = "scale";
  static constexpr bool keeps_f32 = true;
  double factor = 1;
  Tensor forward(const Tensor& x) const { return scaled(x, factor); }
  Gradients backward(const Tensor& dy) const { return {scaled(dy, factor)}; }
};

/// y = x + value;  dx = dy
struct AddScalar : Op {
  static constexpr const char* name = "add_scalar";
  static constexpr bool keeps_f32 = true;
  double value = 0;
  Tensor forward(const Tensor& x) const {
    return binary(Binary::add, x, Tensor::full({}, value, x.dtype(), x.device()), name);
  }
  Gradients backward(const Tensor& dy) const { return {dy}; }
};

/// y = f(x);  dx = f'(x) dy
struct ApplyUnary : Op {
  static constexpr const char* name = "unary";
  static constexpr bool keeps_f32 = true;
  Unary op = Unary::negate;
  Tensor x;
  Tensor forward(const Tensor& input) {
    x = contiguous(input);
    return with_columns_of(input, repeat());
  }
  Tensor repeat() const {
    Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
    kernels(x.device()).unary(op, x, y);
    return y;
  }
  Gradients backward(const Tensor& dy) const {
    const Tensor gradient = contiguous(dy), at = cast(x, dy.dtype());
    Tensor dx = empty_like(at);
    kernels(x.device()).unary_backward(op, at, gradient, dx);
    return {dx};
  }
};

/// y = x in another dtype;  dx = dy in x's
struct Cast : Op {
  static constexpr const char* name = "cast";
  static constexpr bool keeps_f32 = true;
  DType to = DType::f32, from = DType::f32;
  Tensor forward(const Tensor& x) {
    from = x.dtype();
    return with_columns_of(x, cast(x, to));
  }
  Gradients backward(const Tensor& dy) const { return {cast(dy, gradient_dtype(0, from))}; }
};

template <class O>
Tensor apply_in_common_dtype(O op, const Tensor& left, const Tensor& right) {
  const auto [a, b] = in_common_dtype(left, right);
  return apply(std::move(op), a, b);
}

}  // namespace

Tensor sum_to(const Tensor& x, const Shape& shape, DType dtype) {
  if (x.shape() == shape) return x;
  Shape aligned = x.shape();  // `shape` with leading ones
  for (int i = 1; i <= x.dims(); ++i) aligned[-i] = i <= shape.dims() ? shape[-i] : 1;
  Tensor y = Tensor::empty(aligned, dtype, x.device());
  kernels(x.device()).reduce(Reduction::sum, x, y);
  return view::reshape(y, shape);
}

Tensor add(const Tensor& a, const Tensor& b) {
  if (are_whole(a, b)) return whole_numbers(Binary::add, a, b, Add::name);
  return apply_in_common_dtype(Add{}, a, b);
}

Tensor subtract(const Tensor& a, const Tensor& b) {
  if (are_whole(a, b)) return whole_numbers(Binary::subtract, a, b, Subtract::name);
  return apply_in_common_dtype(Subtract{}, a, b);
}

Tensor multiply(const Tensor& a, const Tensor& b) {
  if (are_whole(a, b)) return whole_numbers(Binary::multiply, a, b, Multiply::name);
  return apply_in_common_dtype(Multiply{}, a, b);
}

Tensor divide(const Tensor& a, const Tensor& b) { return apply_in_common_dtype(Divide{}, a, b); }

Tensor subtract(double value, const Tensor& x) {
  if (are_whole(x, x)) return subtract(whole_number(value, Subtract::name), x);
  require_floating(Subtract::name, x);
  return subtract(Tensor::full({}, value, x.dtype(), x.device()), x);
}

Tensor divide(const Tensor& x, double value) {
  require_floating(Divide::name, x);
  return divide(x, Tensor::full({}, value, x.dtype(), x.device()));
}

Tensor divide(double value, const Tensor& divisor) {
  require_floating(Divide::name, divisor);
  const Tensor x = in_f32(divisor);
  return divide(Tensor::full({}, value, x.dtype(), x.device()), x);
}

Tensor scale(const Tensor& x, double factor) {
  if (are_whole(x, x)) return multiply(x, whole_number(factor, Scale::name));
  require_floating(Scale::name, x);
  Scale op;
  op.factor = factor;
  return apply(op, x);
}

Tensor add_scalar(const Tensor& x, double value) {
  if (are_whole(x, x)) return add(x, whole_number(value, AddScalar::name));
  require_floating(AddScalar::name, x);
  AddScalar op;
  op.value = value;
  return apply(op, x);
}

Tensor apply_unary(Unary unary, const Tensor& x) {
  if (unary == Unary::negate && are_whole(x, x)) return subtract(0, x);
  require_floating(ApplyUnary::name, x);
  ApplyUnary op;
  op.op = unary;
  return apply(op, unary == Unary::exp || unary == Unary::log ? in_f32(x) : x);
}

Tensor cast_to(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  if (!is_floating(dtype)) return cast(x, dtype);  // no gradient flows through a whole number
  Cast op;
  op.to = dtype;
  return apply(op, x);
}

}  // namespace trireme
