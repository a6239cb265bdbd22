#include "nn/linear.h"

#include "autograd/autocast.h"
#include "nn/lora.h"
#include "parallel/mesh/redistribute.h"

namespace trireme::nn {
namespace {

using placement::P, placement::R, placement::S;

Shape weight_shape(const Shape& out, std::int64_t in) {
  std::vector<std::int64_t> extents(out.begin(), out.end());
  extents.push_back(in);
  return Shape(std::span<const std::int64_t>(extents));
}

struct LinearPlacements {
  Placement weight, bias;
};

LinearPlacements placements(const Build& b, Split split, const Shape& out, bool shared) {
  const Placement by_output = shared ? R : S(out.dims() - 1);
  if (split == Split::out) return {by_output, by_output};
  return {split == Split::in ? S(out.dims()) : b.per_position_placement(), b.per_position_placement()};
}

Init initial_weight(const LinearOptions& options, const Shape& out) {
  Init init = options.weight_init.value_or(Init::normal(options.init_std));
  init.output_dims = out.dims();
  return init;
}

}  // namespace

Linear::Linear(const Build& b, std::int64_t in, const Shape& out, Split split, const LinearOptions& options)
    : Module(b), split_(split), split_dim_(out.dims() - 1) {
  require(out.dims() > 0, "linear", "{}: no output dims; expected at least one, such as {{4}}", name());
  const int tp = b.mesh().size(Axis::tp);
  if (split == Split::out && options.parts > 0 && options.parts % tp != 0) {
    require(tp % options.parts == 0, "linear", "{}: {} parts and tp={}: one must divide the other", name(),
            options.parts, tp);
    parts_ = options.parts;
  }
  const LinearPlacements tp_placements = placements(b, split, out, parts_ > 0);
  weight_ = b.parameter("weight", weight_shape(out, in), {.tp = tp_placements.weight}, initial_weight(options, out),
                        {.decay = true, .hidden_matrix = options.hidden});
  if (options.bias) bias_ = b.parameter("bias", out, {.tp = tp_placements.bias}, Init::zeros());
  if (const LoraOptions* const lora = b.lora())
    lora_ = std::make_shared<Lora>(b, *lora, AdaptedLayer{in, out, split, parts_, options.separate_adapters});
}

Linear::Linear(const Build& b, std::int64_t in, std::int64_t out, const WholeLinearOptions& options)
    : Linear(b, in, {out}, Split::none,
             {.bias = options.bias, .weight_init = options.weight_init, .hidden = options.hidden}) {}

Tensor Linear::forward(const Tensor& x) {
  if (split_ == Split::out) return of_replicated(gathered(x));
  const Tensor y = with_adapter(linear(x, weight(), complete() ? bias() : Tensor()), x);
  return complete() ? y : completed(y);
}

Tensor Linear::do_forward_add(const Tensor& residual, const Tensor& x) {
  if (split_ == Split::out || !complete()) return residual + forward(x);
  return with_adapter(linear(x, weight(), bias(), residual), x);
}

Tensor Linear::of_replicated(const Tensor& x) {
  require(split_ == Split::out, "linear", "{} is not split by outputs", name());
  Tensor y = with_adapter(linear(x, weight(), bias()), x);
  if (const int tp = mesh().size(Axis::tp); tp > 1)
    y.set_columns({.width = y.size(-1), .whole = y.size(-1) * tp, .parts = tp, .features = true});
  return y;
}

Tensor Linear::with_adapter(const Tensor& y, const Tensor& x) const { return lora_ ? lora_->add(y, x, training()) : y; }

Tensor Linear::gathered(const Tensor& x) const {
  const CallSite site(name());
  return redistribute(x, mesh(), Axis::tp, residual(), R);
}

Tensor Linear::completed(const Tensor& y) const {
  const CallSite site(name());
  const Tensor sum = redistribute(y, mesh(), Axis::tp, P, residual());
  if (!bias_) return sum;
  return sum + reshape(for_product(bias_->value()), {bias_->value().count()});  // `out` of several dims is flat in y
}

/// What this rank computes with: its shard, or its part of a weight that ranks share.
Tensor Linear::used_part(const ParameterPtr& parameter) const {
  if (parts_ == 0) return parameter->value();
  const std::int64_t length = parameter->local.size(split_dim_) / parts_;
  const std::int64_t part = mesh().coord(Axis::tp) * parts_ / mesh().size(Axis::tp);
  return slice(parameter->value(), split_dim_, part * length, length);
}

}  // namespace trireme::nn
