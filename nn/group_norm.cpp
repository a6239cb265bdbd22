#include "nn/group_norm.h"

#include "autograd/group_norm.h"
#include "nn/conv.h"

namespace trireme::nn {

GroupNorm::GroupNorm(const Build& b, std::int64_t groups, std::int64_t channels, double eps)
    : Module(b),
      groups_(groups),
      eps_(eps),
      weight_(b.parameter("weight", {channels}, {.tp = placement::I}, Init::ones())),
      bias_(b.parameter("bias", {channels}, {.tp = placement::I}, Init::zeros())) {
  require_whole_samples(b, "group_norm");
  if (!(eps >= 0)) fail(ExitCode::usage, "group_norm", "{}: eps is {}; expected at least 0", name(), eps);
  if (groups < 1 || channels % groups != 0)
    fail(ExitCode::usage, "group_norm", "{}: {} groups of {} channels; expected a divisor of the channels", name(),
         groups, channels);
}

Tensor GroupNorm::forward(const Tensor& x) { return group_norm(x, groups_, weight_->value(), bias_->value(), eps_); }

}  // namespace trireme::nn
