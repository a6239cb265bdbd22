#include "nn/mlp.h"

namespace trireme::nn {

Mlp::Mlp(const Build& b, const MlpOptions& o)
    : Module(b),
      activation_(o.activation),
      gated_(o.gated),
      up_(b / (o.gated ? "gate_up" : "up"), o.width, o.gated ? Shape{2, o.hidden} : Shape{o.hidden}, Split::out,
          {.bias = o.bias, .deviation = o.deviation}),
      down_(b / "down", o.hidden, {o.width}, Split::in, {.bias = o.bias, .deviation = o.residual_deviation}) {}

Tensor Mlp::forward(const Tensor& x) {
  const Tensor widened = up_(x);                                                       // [B, T, F/tp], or 2 F/tp
  const Tensor hidden = gated_ ? swiglu(widened) : apply_unary(activation_, widened);  // [B, T, F/tp]
  return down_(hidden);                                                                // [B, T, D]
}

}  // namespace trireme::nn
