#include "nn/conv.h"

#include <cmath>

namespace trireme::nn {
namespace {

/// A convolution's weight of this shape, [out, in / groups, kernel..].
ParameterPtr kernel_weight(const Build& b, const char* layer, std::int64_t in, const Shape& shape, std::int64_t groups,
                           double init_std) {
  require_whole_samples(b, layer);
  if (groups < 1 || in % groups != 0 || shape[0] % groups != 0)
    fail(ExitCode::usage, layer,
         "{}: {} groups of {} input and {} output channels; expected a number that divides both; change groups",
         b.name(), groups, in, shape[0]);
  const auto fan_in =
      static_cast<double>(std::max<std::int64_t>(shape.count() / std::max<std::int64_t>(shape[0], 1), 1));
  return b.parameter("weight", shape, {.tp = placement::I},
                     Init::normal(init_std > 0 ? init_std : std::sqrt(2.0 / fan_in)), {.decay = true});
}

ParameterPtr kernel_bias(const Build& b, std::int64_t out) {
  return b.parameter("bias", {out}, {.tp = placement::I}, Init::zeros());
}

}  // namespace

void require_whole_samples(const Build& b, std::string_view layer) {
  const bool by_cp = b.mesh().size(Axis::cp) > 1;
  if (!by_cp && !(b.parallelism().sequence && b.mesh().size(Axis::tp) > 1)) return;
  fail(
      ExitCode::usage, layer,
      "{}: this layer mixes or counts all positions of a sample, and {} splits them over ranks; expected whole samples "
      "on each rank; use cp=1{}",
      b.name(), by_cp ? "cp" : "sequence parallelism",
      by_cp ? "" : " of the mesh, and Parallelism::sequence = false (--sequence-parallel off)");
}

Conv2d::Conv2d(const Build& b, std::int64_t in, std::int64_t out, Size2d kernel, const Conv2dLayerOptions& o)
    : Module(b),
      options_{.stride = o.stride, .padding = o.padding, .dilation = o.dilation, .groups = o.groups},
      weight_(kernel_weight(b, "conv2d", in, {out, in / std::max<std::int64_t>(o.groups, 1), kernel[0], kernel[1]},
                            o.groups, o.init_std)) {
  if (o.bias) bias_ = kernel_bias(b, out);
}

Tensor Conv2d::forward(const Tensor& x) {
  return conv2d(x, weight_->value(), bias_ ? bias_->value() : Tensor(), options_);
}

Conv1d::Conv1d(const Build& b, std::int64_t in, std::int64_t out, std::int64_t kernel, const Conv1dLayerOptions& o)
    : Module(b),
      options_{.stride = o.stride, .padding = o.padding, .dilation = o.dilation, .groups = o.groups},
      weight_(kernel_weight(b, "conv1d", in, {out, in / std::max<std::int64_t>(o.groups, 1), kernel}, o.groups,
                            o.init_std)) {
  if (o.bias) bias_ = kernel_bias(b, out);
}

Tensor Conv1d::forward(const Tensor& x) {
  return conv1d(x, weight_->value(), bias_ ? bias_->value() : Tensor(), options_);
}

}  // namespace trireme::nn
