#include "nn/mlp.h"

namespace trireme::nn {

Mlp::Mlp(const Build& b, const MlpOptions& o)
    : Module(b),
      activation_(o.activation),
      gated_(o.gated),
      up_(b / (o.gated ? "gate_up" : "up"), o.width, o.gated ? Shape{2, o.hidden} : Shape{o.hidden}, Split::out,
          {.bias = o.bias, .init_std = o.init_std}),
      down_(b / "down", o.hidden, {o.width}, Split::in, {.bias = o.bias, .init_std = o.residual_init_std}) {}

Tensor Mlp::do_forward_add(const Tensor& residual, const Tensor& x) {
  if (gated_) {
    const Tensor hidden = swiglu(up_(x));  // [B, T, F/tp]
    return residual.defined() ? down_.forward_add(residual, hidden) : down_(hidden);
  }
  const Tensor input = up_.gathered(x);  // [B, T, D]
  MlpWeights weights = {.in = up_.weight(), .in_bias = up_.bias(), .out = down_.weight(), .out_bias = {}};
  if (!down_.complete()) {
    const Tensor y = down_.completed(mlp(input, weights, activation_));
    return residual.defined() ? residual + y : y;
  }
  weights.out_bias = down_.bias();
  return mlp(input, weights, activation_, residual);
}

}  // namespace trireme::nn
