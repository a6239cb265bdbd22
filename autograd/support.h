// Small pieces several operations share; not for models.
#pragma once

#include "core/kernels.h"
#include "core/tensor.h"

namespace trireme {

/// Sums x over the dims along which `shape` was broadcast to x's shape: the gradient of broadcasting. The result of a
/// sum has `dtype`: x's dtype, or accumulate_dtype(x). Returns x if nothing is summed.
Tensor sum_to(const Tensor& x, const Shape& shape, DType dtype);

/// An uninitialised tensor of x's shape, dtype and device.
inline Tensor empty_like(const Tensor& x) { return Tensor::empty(x.shape(), x.dtype(), x.device()); }

/// The dtype of statistics of x.
inline DType accumulate_dtype(const Tensor& x) { return accumulate_dtype(x.dtype()); }

/// Throws, naming the operation, unless x is a defined tensor of a floating dtype.
inline void require_floating(const char* where, const Tensor& x) {
  require(x.defined(), where, "an input is undefined; expected a tensor (was it an absent gradient?)");
  require(is_floating(x.dtype()), where, "an input {} {}; expected a floating dtype; cast_to(x, DType::f32)",
          name(x.dtype()), x.shape());
}

/// The number of rows [D] of x [.., D], also if D is 0.
inline std::int64_t row_count(const Tensor& x) { return x.shape().without(-1).count(); }

/// x [.., D] seen as rows [N, D].
inline Tensor as_rows(const Tensor& x) { return view::reshape(contiguous(x), {row_count(x), x.size(-1)}); }

/// Throws if `bias` is defined and has another dtype than the layer's input and weight. Kernels read it as that dtype.
inline void check_bias_dtype(const char* where, const Tensor& bias, const Tensor& x) {
  require(!bias.defined() || bias.dtype() == x.dtype(), where,
          "dtypes differ: input {}, bias {}; expected one dtype; cast_to it", name(x.dtype()), name(bias.dtype()));
}

/// Throws if `residual` is defined and differs in shape or dtype from the result of a layer with this weight on x.
inline void check_residual(const char* where, const Tensor& residual, const Tensor& x, const Tensor& weight) {
  if (!residual.defined()) return;
  const Shape shape = x.shape().with(-1, row_count(weight));
  require(residual.shape() == shape && residual.dtype() == x.dtype(), where,
          "a residual {} {}; expected {} {}, as the result it is added to", name(residual.dtype()), residual.shape(),
          name(x.dtype()), shape);
}

}  // namespace trireme
