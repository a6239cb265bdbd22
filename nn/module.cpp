#include "nn/module.h"

#include "core/random.h"

namespace trireme::nn {

LayerNorm::LayerNorm(const Build& b, std::int64_t width, bool bias, double eps)
    : Module(b), eps_(eps), weight_(b.parameter("weight", {width}, {}, Init::ones())) {
  if (bias) bias_ = b.parameter("bias", {width}, {}, Init::zeros());
}

Tensor LayerNorm::forward(const Tensor& x) {
  return layer_norm(x, weight_->value, bias_ ? bias_->value : Tensor(), eps_);
}

RmsNorm::RmsNorm(const Build& b, std::int64_t width, double eps)
    : Module(b), eps_(eps), weight_(b.parameter("weight", {width}, {}, Init::ones())) {}

Tensor RmsNorm::forward(const Tensor& x) { return rms_norm(x, weight_->value, eps_); }

Tensor Dropout::forward(const Tensor& x) {
  if (!run().training || p_ == 0) return x;
  require(x.dims() == 3, "dropout", "{} expects [B, T, D], got {}", name(), x.shape());
  const Rectangle where{.global = x.shape().with(0, run().first_sample + x.size(0)),
                        .start = {run().first_sample, 0, 0}};
  return dropout(x, p_, seed_, stream_of(name()), where);
}

}  // namespace trireme::nn
