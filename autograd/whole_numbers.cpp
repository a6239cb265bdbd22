#include "autograd/whole_numbers.h"

#include <cmath>
#include <cstdint>
#include <limits>

namespace trireme {
namespace {

using Limits = std::numeric_limits<std::int32_t>;

bool fits(double value) { return value >= Limits::min() && value <= Limits::max(); }

}  // namespace

// In f64: exact up to 2^53, which the sum of two i32 never reaches. A product beyond it is no i32 anyway.
Tensor whole_numbers(Binary op, const Tensor& a, const Tensor& b, const char* where) {
  require(a.device() == Device::cpu && b.device() == Device::cpu, where,
          "i32 tensors on {} and {}; expected both on the host, where alone they are added and multiplied; call "
          "to(Device::cpu), or cast_to(x, DType::f32)",
          name(a.device()), name(b.device()));
  const Shape shape = broadcast_shape(a.shape(), b.shape(), where);
  Tensor result = Tensor::empty(shape, DType::f64);
  kernels(Device::cpu)
      .binary(op, view::expand(cast(a, DType::f64), shape), view::expand(cast(b, DType::f64), shape), result);
  for (const double value : result.span<const double>())
    if (!fits(value))
      fail(ExitCode::data, where,
           "a result is {:.0f}, which is no i32; expected {} to {}; cast_to(x, DType::f32) for larger numbers", value,
           Limits::min(), Limits::max());
  return cast(result, DType::i32);
}

Tensor whole_number(double value, const char* where) {
  require(std::trunc(value) == value && fits(value), where,
          "an i32 tensor and the number {}; expected a whole one of {} to {}; cast_to(x, DType::f32) for others", value,
          Limits::min(), Limits::max());
  return Tensor::full({}, value, DType::i32);
}

}  // namespace trireme
