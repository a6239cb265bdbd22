#include "nn/module.h"

#include "nn/sample_dropout.h"

namespace trireme::nn {
namespace {

/// What a norm multiplies by: its weight [D], or 1 + weight.
Tensor gain(const Tensor& weight, bool zero_centred) { return zero_centred ? weight + 1.0 : weight; }

}  // namespace

Tensor Module::operator()(const Tensor& x) {
  return call([&] { return with_hooks(x, forward(x)); });
}

Tensor Module::forward_add(const Tensor& residual, const Tensor& x) {
  return call([&] { return with_hooks(x, do_forward_add(residual, x)); });
}

Tensor Module::with_hooks(const Tensor& x, const Tensor& y) const {
  for (const ForwardHook& hook : hooks_) hook(*this, x, y);
  return y;
}

LayerNorm::LayerNorm(const Build& b, std::int64_t width, bool bias, double eps, bool zero_centred)
    : Module(b),
      eps_(eps),
      zero_centred_(zero_centred),
      weight_(
          b.parameter("weight", {width}, {.tp = b.per_position_placement()}, Init::constant(zero_centred ? 0 : 1))) {
  if (bias) bias_ = b.parameter("bias", {width}, {.tp = b.per_position_placement()}, Init::zeros());
}

Tensor LayerNorm::forward(const Tensor& x) {
  return layer_norm(x, gain(weight_->value(), zero_centred_), bias_ ? bias_->value() : Tensor(), eps_);
}

RmsNorm::RmsNorm(const Build& b, std::int64_t width, double eps, bool zero_centred)
    : Module(b),
      eps_(eps),
      zero_centred_(zero_centred),
      weight_(
          b.parameter("weight", {width}, {.tp = b.per_position_placement()}, Init::constant(zero_centred ? 0 : 1))) {}

Tensor RmsNorm::forward(const Tensor& x) { return rms_norm(x, gain(weight_->value(), zero_centred_), eps_); }

Dropout::Dropout(const Build& b, double p) : Module(b), p_(p) {
  if (!(p >= 0 && p < 1))
    fail(ExitCode::usage, "dropout", "{}: a probability of {}; expected at least 0 and less than 1", name(), p);
  for (const ModuleBase* other : b.modules())
    if (other != this && other->name() == name() && dynamic_cast<const Dropout*>(other) != nullptr)
      fail(ExitCode::usage, "dropout",
           "two Dropouts have the name '{}', and would drop the same elements; expected a name of its own for each; "
           "give "
           "one of the two another name: b / \"name\"",
           name());
}

Tensor Dropout::forward(const Tensor& x) {
  if (!drops()) return x;
  const std::int64_t features = x.dims() > 0 ? x.size(-1) : 0;
  return dropout_in_samples(x, p_, build(), name(), {.tokens = parallelism(), .features = features});
}

}  // namespace trireme::nn
