#include "nn/mlp.h"

namespace trireme::nn {
namespace {

const MlpOptions& checked(const MlpOptions& o, const std::string& name) {
  if (o.width < 1 || o.hidden < 1)
    fail(ExitCode::usage, "mlp", "{}: width {} and hidden {}; expected both to be at least 1; set MlpOptions::{}", name,
         o.width, o.hidden, o.width < 1 ? "width" : "hidden");
  return o;
}

}  // namespace

Mlp::Mlp(const Build& b, const MlpOptions& o)
    : Module(b),
      activation_(checked(o, b.name()).activation),
      gate_(o.gate),
      up_(b / (gate_ ? "gate_up" : "up"), o.width, gate_ ? Shape{2, o.hidden} : Shape{o.hidden}, Split::out,
          {.bias = o.bias, .init_std = o.init_std, .separate_adapters = gate_.has_value()}),
      down_(b / "down", o.hidden, {o.width}, Split::in, {.bias = o.bias, .init_std = o.residual_init_std}) {}

Tensor Mlp::do_forward_add(const Tensor& residual, const Tensor& x) {
  if (gate_) {
    const Tensor hidden = gated_unit(up_(x), *gate_);  // [B, T, F/tp]
    return residual.defined() ? down_.forward_add(residual, hidden) : down_(hidden);
  }
  if (up_.adapted() || down_.adapted()) {
    const Tensor hidden = apply_unary(activation_, up_(x));  // [B, T, F/tp]
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
