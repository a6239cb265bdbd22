// Comparisons, and operations that choose between elements: where, minimum, maximum, clamp; and powers.
#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/support.h"
#include "core/columns.h"
#include "core/cpu/channel_kernels.h"

namespace trireme {
namespace {

void require_equal_dtypes(const char* where, const Tensor& a, const Tensor& b) {
  require(a.defined() && b.defined(), where, "an input is undefined; expected a tensor");
  require(a.dtype() == b.dtype(), where, "dtypes differ: {} and {}; cast_to one of them", name(a.dtype()),
          name(b.dtype()));
  require_one_device(where, {&a, &b});
}

Tensor number_like(double value, const Tensor& x) { return Tensor::full({}, value, x.dtype(), x.device()); }

/// y = op(a, b), which broadcast; off the tape.
Tensor elementwise(Binary op, const Tensor& a, const Tensor& b, const char* where) {
  const Shape shape = broadcast_shape(a.shape(), b.shape(), where);
  Tensor y = Tensor::empty(shape, a.dtype(), a.device());
  kernels(a.device()).binary(op, view::expand(a, shape), view::expand(b, shape), y);
  return with_columns_of(a, b, y);
}

/// mask != 0 ? a : b, which broadcast; off the tape. The mask is converted to the dtype of a and b.
Tensor choose(const Tensor& mask, const Tensor& a, const Tensor& b, const char* where) {
  const Shape shape = broadcast_shape(broadcast_shape(a.shape(), b.shape(), where), mask.shape(), where);
  Tensor y = Tensor::empty(shape, a.dtype(), a.device());
  kernels(a.device())
      .where(view::expand(cast(mask, a.dtype()), shape), view::expand(a, shape), view::expand(b, shape), y);
  return y;  // padding of a or b may be what the mask replaces
}

/// y = mask ? a : b;  da = mask ? dy : 0, db = mask ? 0 : dy
struct Where : Op {
  static constexpr const char* name = "where";
  static constexpr bool keeps_f32 = true;
  Tensor mask;
  Shape shape_a, shape_b;
  Tensor forward(const Tensor& a, const Tensor& b) {
    shape_a = a.shape();
    shape_b = b.shape();
    return choose(mask, a, b, name);
  }
  Gradients backward(const Tensor& dy) const {
    const Tensor zero = number_like(0, dy);
    return {needs(0) ? sum_to(choose(mask, dy, zero, name), shape_a, gradient_dtype(0, dy.dtype())) : Tensor(),
            needs(1) ? sum_to(choose(mask, zero, dy, name), shape_b, gradient_dtype(1, dy.dtype())) : Tensor()};
  }
};

/// y = the larger (smaller) of a and b;  the one that is chosen gets dy; where they are equal, each gets dy / 2
template <Binary op>
struct Extreme : Op {
  static constexpr const char* name = op == Binary::maximum ? "maximum" : "minimum";
  static constexpr bool keeps_f32 = true;
  Tensor a, b;
  Tensor forward(const Tensor& left, const Tensor& right) {
    a = left;
    b = right;
    return elementwise(op, a, b, name);
  }
  Tensor chosen(const Tensor& dy, const Tensor& half, const Tensor& one, const Tensor& other) const {
    const bool largest = op == Binary::maximum;
    const Tensor zero = number_like(0, dy);
    const Tensor wins = elementwise(Binary::less, largest ? other : one, largest ? one : other, name);
    return choose(wins, dy, choose(elementwise(Binary::equal, one, other, name), half, zero, name), name);
  }
  Gradients backward(const Tensor& dy) const {
    const Tensor half = elementwise(Binary::multiply, dy, number_like(0.5, dy), name);
    return {needs(0) ? sum_to(chosen(dy, half, a, b), a.shape(), gradient_dtype(0, dy.dtype())) : Tensor(),
            needs(1) ? sum_to(chosen(dy, half, b, a), b.shape(), gradient_dtype(1, dy.dtype())) : Tensor()};
  }
};

/// y = min(max(x, low), high);  dx = dy where low < x < high, else 0
struct Clamp : Op {
  static constexpr const char* name = "clamp";
  static constexpr bool keeps_f32 = true;
  double low = 0, high = 0;
  Tensor x;
  Tensor forward(const Tensor& input) {
    x = input;
    if (x.device() == Device::cpu) {
      const Tensor y = empty_like(x);
      cpu::channel_kernels().clamp(low, high, contiguous(x), y);
      return with_columns_of(x, y);
    }
    const KernelTable& k = kernels(x.device());
    Tensor y = elementwise(Binary::maximum, x, number_like(low, x), name);
    k.binary(Binary::minimum, y, view::expand(number_like(high, x), y.shape()), y);
    return y;
  }
  Gradients backward(const Tensor& dy) const {
    const Tensor zero = number_like(0, dy);
    const Tensor above = elementwise(Binary::less, number_like(low, x), x, name);
    const Tensor below = elementwise(Binary::less, x, number_like(high, x), name);
    return {choose(above, choose(below, dy, zero, name), zero, name)};
  }
};

/// x^p; off the tape. Products where that is exact enough: the kernel of powers takes a logarithm and an exponential.
Tensor powered(const Tensor& x, double exponent) {
  const KernelTable& k = kernels(x.device());
  if (exponent != 2 && exponent != 3) return elementwise(Binary::power, x, number_like(exponent, x), "pow");
  Tensor y = empty_like(x);
  k.unary(Unary::square, contiguous(x), y);
  if (exponent == 3) k.binary(Binary::multiply, y, x, y);
  return with_columns_of(x, y);
}

/// y = x^p;  dx = p x^(p - 1) dy, and 0 if p is 0
struct Power : Op {
  static constexpr const char* name = "pow";
  static constexpr bool keeps_f32 = true;
  double exponent = 1;
  Tensor x;
  Tensor forward(const Tensor& input) {
    x = input;
    return powered(x, exponent);
  }
  Gradients backward(const Tensor& dy) const {
    if (exponent == 0) return {Tensor::zeros(x.shape(), dy.dtype(), dy.device())};
    Tensor dx = powered(cast(x, dy.dtype()), exponent - 1);
    const KernelTable& k = kernels(x.device());
    k.axpby(exponent, dx, 0, dx);
    k.binary(Binary::multiply, dx, dy, dx);
    return {dx};
  }
};

template <Binary op>
Tensor extreme(const Tensor& left, const Tensor& right) {
  const auto [a, b] = in_common_dtype(left, right);
  require_floating(Extreme<op>::name, a);
  require_floating(Extreme<op>::name, b);
  require_equal_dtypes(Extreme<op>::name, a, b);
  return apply(Extreme<op>{}, a, b);
}
template <Binary op>
Tensor extreme(const Tensor& x, double value) {
  require_floating(Extreme<op>::name, x);
  return extreme<op>(x, number_like(value, x));
}

const char* name_of(Binary op) {
#define TRIREME_NAME_OF(entry) \
  case Binary::entry:          \
    return #entry;
  switch (op) { TRIREME_EVERY_BINARY(TRIREME_NAME_OF) }
#undef TRIREME_NAME_OF
  return "compare";
}

}  // namespace

Tensor compare(Binary op, const Tensor& left, const Tensor& right) {
  const auto [a, b] = in_common_dtype(left, right);
  const char* const where = name_of(op);
  require_equal_dtypes(where, a, b);
  if (is_floating(a.dtype())) return elementwise(op, a.detach(), b.detach(), where);
  return cast(elementwise(op, cast(a, DType::f64), cast(b, DType::f64), where), DType::f32);
}

Tensor compare(Binary op, const Tensor& a, double b) {
  require(a.defined(), name_of(op), "an input is undefined; expected a tensor");
  if (is_floating(a.dtype())) return compare(op, a, number_like(b, a));
  return cast(compare(op, cast(a, DType::f64), b), DType::f32);
}

Tensor compare(Binary op, double a, const Tensor& b) {
  require(b.defined(), name_of(op), "an input is undefined; expected a tensor");
  if (is_floating(b.dtype())) return compare(op, number_like(a, b), b);
  return cast(compare(op, a, cast(b, DType::f64)), DType::f32);
}

Tensor where(const Tensor& mask, const Tensor& yes, const Tensor& no) {
  const auto [a, b] = in_common_dtype(yes, no);
  require_floating(Where::name, a);
  require_floating(Where::name, b);
  require_equal_dtypes(Where::name, a, b);
  require(mask.defined(), Where::name, "the mask is undefined; expected a tensor");
  require_one_device(Where::name, {&a, &mask});
  Where op;
  op.mask = mask.detach();
  op.saved.add(op.mask, "mask");
  return apply(std::move(op), a, b);
}

Tensor where(const Tensor& mask, const Tensor& a, double b) {
  require_floating(Where::name, a);
  return where(mask, a, number_like(b, a));
}

Tensor where(const Tensor& mask, double a, const Tensor& b) {
  require_floating(Where::name, b);
  return where(mask, number_like(a, b), b);
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, double value) {
  require_floating("masked_fill", x);
  require(mask.defined() && broadcast_shape(x.shape(), mask.shape(), "masked_fill") == x.shape(), "masked_fill",
          "the mask {} does not broadcast to {}; expected one that does; where also broadcasts x", mask.shape(),
          x.shape());
  return where(mask, value, x);
}

Tensor maximum(const Tensor& a, const Tensor& b) { return extreme<Binary::maximum>(a, b); }
Tensor minimum(const Tensor& a, const Tensor& b) { return extreme<Binary::minimum>(a, b); }
Tensor maximum(const Tensor& x, double value) { return extreme<Binary::maximum>(x, value); }
Tensor minimum(const Tensor& x, double value) { return extreme<Binary::minimum>(x, value); }

Tensor clamp(const Tensor& x, double low, double high) {
  require_floating(Clamp::name, x);
  require(low <= high, Clamp::name, "a range from {} to {}; expected the lower bound first", low, high);
  Clamp op;
  op.low = low;
  op.high = high;
  return apply(std::move(op), x);
}

Tensor pow(const Tensor& input, double exponent) {
  const Tensor x = in_f32(input);
  require_floating(Power::name, x);
  if (exponent == 1) return x;
  if (exponent == 2) return square(x);
  if (exponent == 0.5) return sqrt(x);
  if (exponent == -1) return divide(1, x);
  Power op;
  op.exponent = exponent;
  return apply(std::move(op), x);
}

}  // namespace trireme
