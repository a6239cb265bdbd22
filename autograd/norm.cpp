// Layer norm (Ba et al. 2016) and RMS norm (Zhang and Sennrich 2019) over the last dim.
#include "autograd/engine.h"
#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/support.h"

namespace trireme {
namespace {

/// The gradient of the norm's input from the operations after it, as of a residual stream: rows [N, D], or undefined.
/// The kernel adds it to dx.
Tensor gradient_so_far(const Op& op, const Tensor& x) {
  const Tensor earlier = op.needs(0) && !op.in_f32(0) ? take_gradient_so_far(0, x.dtype()) : Tensor();
  return earlier.defined() ? view::reshape(contiguous(earlier), x.shape()) : earlier;
}

/// y = (x - mean) rstd gamma + beta, with xhat = (x - mean) rstd and g = dy gamma:
/// dx = rstd (g - mean(g) - xhat mean(g xhat)), dgamma = sum dy xhat, dbeta = sum dy
struct LayerNorm : Op {
  static constexpr const char* name = "layer_norm";
  double eps = 1e-5;
  Tensor x;            // [N, D]
  Tensor gamma, beta;  // [D]
  Tensor mean, rstd;   // [N]
  Shape shape;         // of the input

  Tensor forward(const Tensor& input, const Tensor& g, const Tensor& b) {
    x = as_rows(input);
    gamma = g;
    beta = b;
    shape = input.shape();
    mean = Tensor::empty({x.size(0)}, accumulate_dtype(x), x.device());
    rstd = empty_like(mean);
    return repeat();
  }
  Tensor repeat() const {
    Tensor y = empty_like(x), same_mean = mean, same_rstd = rstd;
    kernels(x.device()).layer_norm(x, gamma, beta, eps, y, same_mean, same_rstd);
    return view::reshape(y, shape);
  }

  Gradients backward(const Tensor& dy) const {
    const Tensor dx = empty_like(contiguous(dy)), earlier = gradient_so_far(*this, x);
    Tensor rows = as_rows(dx);
    Tensor dgamma = Tensor::empty(gamma.shape(), accumulate_dtype(x), x.device());
    Tensor dbeta = beta.defined() ? empty_like(dgamma) : Tensor();
    kernels(x.device()).layer_norm_backward(x, gamma, mean, rstd, as_rows(dy), earlier, rows, dgamma, dbeta);
    return {dx, dgamma, dbeta};
  }
};

/// y = x rstd gamma, with xhat = x rstd and g = dy gamma:  dx = rstd (g - xhat mean(g xhat)), dgamma = sum dy xhat
struct RmsNorm : Op {
  static constexpr const char* name = "rms_norm";
  double eps = 1e-5;
  Tensor x;      // [N, D]
  Tensor gamma;  // [D]
  Tensor rstd;   // [N]
  Shape shape;   // of the input

  Tensor forward(const Tensor& input, const Tensor& g) {
    x = as_rows(input);
    gamma = g;
    shape = input.shape();
    rstd = Tensor::empty({x.size(0)}, accumulate_dtype(x), x.device());
    return repeat();
  }
  Tensor repeat() const {
    Tensor y = empty_like(x), same_rstd = rstd;
    kernels(x.device()).rms_norm(x, gamma, eps, y, same_rstd);
    return view::reshape(y, shape);
  }

  Gradients backward(const Tensor& dy) const {
    const Tensor dx = empty_like(contiguous(dy)), earlier = gradient_so_far(*this, x);
    Tensor rows = as_rows(dx);
    Tensor dgamma = Tensor::empty(gamma.shape(), accumulate_dtype(x), x.device());
    kernels(x.device()).rms_norm_backward(x, gamma, rstd, as_rows(dy), earlier, rows, dgamma);
    return {dx, dgamma};
  }
};

void check_row(const char* where, const char* which, const Tensor& x, const Tensor& row) {
  require(x.dims() >= 1 && row.shape() == Shape{x.size(-1)} && row.dtype() == x.dtype(), where,
          "the input {} {} needs a {} {} [{}], got {} {}", name(x.dtype()), x.shape(), which, name(x.dtype()),
          x.dims() ? x.size(-1) : 0, name(row.dtype()), row.shape());
}

}  // namespace

Tensor layer_norm(const Tensor& input, const Tensor& gain, const Tensor& shift, double eps) {
  const Tensor x = in_f32(input), gamma = in_f32(gain), beta = in_f32(shift);
  check_row("layer_norm", "gain", x, gamma);
  if (beta.defined()) check_row("layer_norm", "shift", x, beta);
  require(eps >= 0, "layer_norm", "an eps of {}; expected at least 0", eps);
  LayerNorm op;
  op.eps = eps;
  return apply(std::move(op), x, gamma, beta);
}

Tensor rms_norm(const Tensor& input, const Tensor& gain, double eps) {
  const Tensor x = in_f32(input), gamma = in_f32(gain);
  check_row("rms_norm", "gain", x, gamma);
  require(eps >= 0, "rms_norm", "an eps of {}; expected at least 0", eps);
  RmsNorm op;
  op.eps = eps;
  return apply(std::move(op), x, gamma);
}

}  // namespace trireme
