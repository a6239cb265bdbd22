#include "nn/moe.h"

#include "nn/expert_capacity.h"
#include "parallel/mesh/redistribute.h"

namespace trireme::nn {
namespace {

using placement::P, placement::R, placement::S;

}  // namespace

Moe::Moe(const Build& b, const MoeOptions& o)
    : Module(b),
      options_(o),
      residual_(b.residual()),
      router_(b / "router", o.expert.width, o.experts, o.expert.init_std) {
  const std::int64_t experts = o.experts.count, d = o.expert.width, f = o.expert.hidden;
  const Build widen = b / (o.expert.gate ? "gate_up" : "up"), narrow = b / "down";
  const auto split = [](int tp_dim) { return Placements{.ep = S(0), .tp = S(tp_dim)}; };
  up_ = widen.parameter("weight", o.expert.gate ? Shape{experts, 2, f, d} : Shape{experts, f, d},
                        split(o.expert.gate ? 2 : 1), Init::normal(o.expert.init_std),
                        {.decay = true, .hidden_matrix = true});
  down_ = narrow.parameter("weight", {experts, d, f}, split(2), Init::normal(o.expert.residual_init_std),
                           {.decay = true, .hidden_matrix = true});
  if (o.expert.bias) {
    up_bias_ = widen.parameter("bias", o.expert.gate ? Shape{experts, 2, f} : Shape{experts, f},
                               split(o.expert.gate ? 2 : 1), Init::zeros());
    // Added on tp rank 0 only, inside the sum over tp, so its gradient is summed: R.
    down_bias_ = narrow.parameter("bias", {experts, d}, {.ep = S(0), .tp = R}, Init::zeros());
  }
  if (o.experts.shared > 0) {
    MlpOptions shared = o.expert;
    shared.hidden *= o.experts.shared;
    shared_ = std::make_unique<Mlp>(b / "shared", shared);
  }
}

Tensor Moe::forward(const Tensor& x) {
  const std::int64_t experts = options_.experts.count, k = options_.experts.top_k, width = x.size(2);
  const Router::Choice choice = router_.choose(x);
  const auto gathered = [&](const Tensor& t) { return redistribute(t, mesh(), Axis::tp, residual_, R); };
  const Tensor tokens = gathered(x);                              // [B, T, D], on every tp rank
  const Tensor gate = cast_to(gathered(choice.gate), x.dtype());  // [B, T, K]
  Tensor expert = gathered(choice.expert);                        // [B, T, K]
  if (training() && options_.experts.capacity_factor) {
    const std::int64_t length = expert.size(1) * mesh().size(Axis::cp);
    expert = drop_beyond(expert, experts, expert_capacity(options_.experts, length), mesh());
  }

  const std::int64_t count = tokens.size(0) * tokens.size(1);
  const ExpertDispatch dispatch(view::reshape(expert, {count, k}), experts, mesh());
  const Tensor rows = dispatch.to_experts(reshape(tokens, {count, width}));              // [R, D]
  const Tensor answers = dispatch.from_experts(apply_experts(rows, dispatch.starts()));  // [N K, D]
  const Tensor weighted = reshape(answers, {count, k, width}) * reshape(gate, {count, k, 1});
  const Tensor y = reshape(sum(weighted, 1), tokens.shape());  // [B, T, D], partial sums over tp
  const Tensor routed = redistribute(y, mesh(), Axis::tp, P, residual_);
  return shared_ ? routed + (*shared_)(x) : routed;
}

/// rows [R, D], sorted by expert -> this tp rank's partial sums of the experts' results [R, D].
Tensor Moe::apply_experts(const Tensor& rows, const std::vector<std::int64_t>& starts) const {
  const bool biased = up_bias_ != nullptr;
  const Tensor up = grouped_linear(rows, starts, up_->value(), biased ? up_bias_->value() : Tensor());
  const Tensor hidden = options_.expert.gate ? gated_unit(up, *options_.expert.gate)
                                             : apply_unary(options_.expert.activation, up);  // [R, F/tp]
  Tensor bias = biased ? down_bias_->value() : Tensor();
  // Added once, not tp times. Every rank records it on the tape, so that all ranks have the complete gradient.
  if (biased && mesh().size(Axis::tp) > 1) bias = bias * (mesh().is_first(Axis::tp) ? 1.0 : 0.0);
  return grouped_linear(hidden, starts, down_->value(), bias);  // [R, D]
}

}  // namespace trireme::nn
