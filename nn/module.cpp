#include "nn/module.h"

#include "core/random.h"
#include "nn/positions.h"

namespace trireme::nn {

LayerNorm::LayerNorm(const Build& b, std::int64_t width, bool bias, double eps)
    : Module(b), eps_(eps), weight_(b.parameter("weight", {width}, {.tp = b.beside_residual()}, Init::ones())) {
  if (bias) bias_ = b.parameter("bias", {width}, {.tp = b.beside_residual()}, Init::zeros());
}

Tensor LayerNorm::forward(const Tensor& x) {
  return layer_norm(x, weight_->value(), bias_ ? bias_->value() : Tensor(), eps_);
}

RmsNorm::RmsNorm(const Build& b, std::int64_t width, double eps)
    : Module(b), eps_(eps), weight_(b.parameter("weight", {width}, {.tp = b.beside_residual()}, Init::ones())) {}

Tensor RmsNorm::forward(const Tensor& x) { return rms_norm(x, weight_->value(), eps_); }

Tensor Dropout::forward(const Tensor& x) {
  if (!drops()) return x;
  require(x.dims() == 3, "dropout", "{} expects [B, T, D], got {}", name(), x.shape());
  const std::int64_t length = sequence_length(mesh(), parallelism(), x.size(1));
  Rectangle where{.global = x.shape().with(0, run_state().first_sample + x.size(0)).with(1, length),
                  .start = {run_state().first_sample, 0, 0}};
  const PositionRuns runs = residual_positions(mesh(), parallelism(), length);
  std::vector<Tensor> parts;
  for (const PositionRun& run : runs) {  // one run, except under context parallelism
    where.start[1] = run.global;
    const Tensor part = runs.size() == 1 ? x : slice(x, 1, run.local, run.length);
    parts.push_back(dropout(part, p_, seed_, stream_of(name()), where));
  }
  return concat(parts, 1);
}

}  // namespace trireme::nn
