#include "nn/mlp.h"

namespace trireme::nn {

Mlp::Mlp(const Build& b, const MlpOptions& o)
    : Module(b),
      activation_(o.activation),
      up_(b / "up", o.width, {o.hidden}, Split::out, {.bias = o.bias, .deviation = o.deviation}),
      down_(b / "down", o.hidden, {o.width}, Split::in, {.bias = o.bias, .deviation = o.residual_deviation}) {}

Tensor Mlp::forward(const Tensor& x) {
  const Tensor hidden = apply_unary(activation_, up_(x));  // [B, T, F/tp]
  return down_(hidden);                                    // [B, T, D]
}

}  // namespace trireme::nn
