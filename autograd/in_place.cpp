// x += y and the like: writes into the memory of x, off the tape.
#include "autograd/node.h"
#include "autograd/ops.h"
#include "autograd/support.h"
#include "autograd/whole_numbers.h"

namespace trireme {
namespace {

/// y, or a copy of it if a write to x could change elements of y before they are read.
Tensor apart_from(const Tensor& x, const Tensor& y) {
  if (!y.shares_storage_with(x)) return y.detach();
  const bool same_view =
      x.shape() == y.shape() && x.strides() == y.strides() && x.device_address() == y.device_address();
  return same_view ? y.detach() : clone(y);
}

Tensor& assign(Binary op, Tensor& x, const Tensor& y, const char* where) {
  if (are_whole(x, y) && op != Binary::divide) {
    const Tensor result = whole_numbers(op, x, y, where);
    require(result.shape() == x.shape(), where, "{} does not broadcast to {}, into which the result is written",
            y.shape(), x.shape());
    copy(result, x);
    return x;
  }
  require_floating(where, x);
  require_floating(where, y);
  require(x.dtype() == y.dtype(), where, "dtypes differ: {} and {}; cast_to one of them", name(x.dtype()),
          name(y.dtype()));
  require(!grad_enabled() || !(x.requires_grad() || y.requires_grad()), where,
          "the {} side {} requires a gradient, and a write in place is not recorded; expected tensors without one; "
          "write x = x + y (or -, *, /), or put the update of a weight inside NoGrad",
          x.requires_grad() ? "left" : "right", x.requires_grad() ? x.shape() : y.shape());
  require(broadcast_shape(x.shape(), y.shape(), where) == x.shape(), where,
          "{} does not broadcast to {}, into which the result is written; expected a right side whose shape does",
          y.shape(), x.shape());
  const Tensor right = view::expand(apart_from(x, y), x.shape());
  if (x.contiguous()) {
    kernels(x.device()).binary(op, x, right, x);
    return x;
  }
  Tensor result = empty_like(x);
  kernels(x.device()).binary(op, x, right, result);
  copy(result, x);
  return x;
}

Tensor& assign(Binary op, Tensor& x, double y, const char* where) {
  if (are_whole(x, x) && op != Binary::divide) return assign(op, x, whole_number(y, where), where);
  require_floating(where, x);
  return assign(op, x, Tensor::full({}, y, x.dtype(), x.device()), where);
}

}  // namespace

Tensor& operator+=(Tensor& x, const Tensor& y) { return assign(Binary::add, x, y, "operator+="); }
Tensor& operator-=(Tensor& x, const Tensor& y) { return assign(Binary::subtract, x, y, "operator-="); }
Tensor& operator*=(Tensor& x, const Tensor& y) { return assign(Binary::multiply, x, y, "operator*="); }
Tensor& operator/=(Tensor& x, const Tensor& y) { return assign(Binary::divide, x, y, "operator/="); }
Tensor& operator+=(Tensor& x, double y) { return assign(Binary::add, x, y, "operator+="); }
Tensor& operator-=(Tensor& x, double y) { return assign(Binary::subtract, x, y, "operator-="); }
Tensor& operator*=(Tensor& x, double y) { return assign(Binary::multiply, x, y, "operator*="); }
Tensor& operator/=(Tensor& x, double y) { return assign(Binary::divide, x, y, "operator/="); }

}  // namespace trireme
