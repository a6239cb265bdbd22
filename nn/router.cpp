#include "nn/router.h"

#include "autograd/autocast.h"
#include "nn/positions.h"

namespace trireme::nn {
namespace {

/// How often each expert was chosen in each sequence, or in this rank's part of it: expert [B, T, K] -> [B, E]. f64,
/// because sums of whole numbers are then exact in any order.
Tensor count_choices(const Tensor& expert, std::int64_t experts) {
  const std::int64_t sequences = expert.size(0), choices = expert.size(1) * expert.size(2);
  Tensor counts = Tensor::zeros({sequences, experts}, DType::f64);
  const auto* chosen = expert.data<std::int32_t>();
  for (std::int64_t i = 0; i < sequences * choices; ++i) counts.data<double>()[i / choices * experts + chosen[i]] += 1;
  return counts;
}

/// to [E] += the sum of the rows of counts [B, E].
void add_rows(const Tensor& counts, Tensor& to) {
  const std::int64_t experts = to.count();
  for (std::int64_t i = 0; i < counts.count(); ++i) to.data<double>()[i % experts] += counts.data<double>()[i];
}

/// [.., K] of the given shape: the experts in turn.
Tensor in_turn(const Shape& choices, std::int64_t experts) {
  Tensor expert = Tensor::empty(choices, DType::i32);
  std::int32_t next = 0;
  for (std::int32_t& each : expert.span<std::int32_t>()) each = static_cast<std::int32_t>(next++ % experts);
  return expert;
}

/// log sum exp over the last dim, kept: [.., E] -> [.., 1]
Tensor log_sum_exp(const Tensor& x) {
  const Tensor largest = max(x.detach(), -1, true);
  return log(sum(exp(x - largest), -1, true)) + largest;
}

}  // namespace

Router::Router(const Build& b, std::int64_t width, const ExpertsOptions& options, double init_std)
    : Module(b),
      options_(options),
      parallelism_(b.parallelism()),
      weight_(b.parameter("weight", {options.count, width}, {.tp = b.per_position_placement()}, Init::normal(init_std),
                          {.decay = true})),
      routing_(b.routing().add(options.count)) {
  if (options.bias_update == 0) return;
  routing_.bias = b.buffer("bias", {options.count}, {});
  routing_.rate = options.bias_update;
}

Tensor Router::forward(const Tensor& x) {
  const Autocast in_f32(std::nullopt);
  const DType wide = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  return linear(cast_to(x, wide), cast_to(weight_->value(), wide), {});  // [B, T, E]
}

Router::Choice Router::choose(const Tensor& x) {
  const std::int64_t tokens = x.size(0) * x.size(1);
  const Shape choices = {x.size(0), x.size(1), options_.top_k};
  const Tensor logits = forward(x);              // [B, T, E]
  const Tensor probabilities = softmax(logits);  // [B, T, E]
  const Tensor ranking =
      routing_.bias ? probabilities.detach() + cast_to(routing_.bias->value, probabilities.dtype()) : logits.detach();
  Choice choice{top_k(ranking, options_.top_k).to(Device::cpu), {}};
  if (options_.force_balance) choice.expert = in_turn(choices, options_.count);
  const auto picked = [&](const Tensor& from) {  // [B, T, E] -> [B, T, K]
    const Tensor expert = view::reshape(choice.expert, {tokens, options_.top_k});
    return reshape(pick(reshape(from, {tokens, options_.count}), expert), choices);
  };
  choice.gate = options_.norm == RouterNorm::before ? picked(probabilities) : softmax(picked(logits));
  // If forward is recomputed, only the recorded one counts.
  if (!training() || !grad_enabled()) return choice;
  const Tensor counts = count_choices(choice.expert, options_.count);  // [B, E]
  add_rows(counts, routing_.load);
  if (options_.aux_loss > 0 || options_.z_loss > 0)
    choice.gate = with_auxiliary_loss(choice.gate, own_losses(logits, probabilities, counts));
  return choice;
}

Tensor Router::own_losses(const Tensor& logits, const Tensor& probabilities, const Tensor& counts) {
  require(run_state().step_sequences > 0, "router",
          "{}: the losses are means over the global batch; set RunState::step_sequences before forward", name());
  const auto sequences = static_cast<double>(run_state().step_sequences);
  const auto length = static_cast<double>(sequence_length(mesh(), parallelism_, logits.size(1)));
  Tensor loss;
  if (options_.aux_loss > 0) {
    loss = balance_loss(probabilities, counts, sequences, length);
    routing_.balance += loss.item() / options_.aux_loss;
  }
  if (options_.z_loss > 0) {
    const Tensor z = scale(sum(square(log_sum_exp(logits))), options_.z_loss / (sequences * length));
    routing_.z += z.item() / options_.z_loss;
    loss = loss.defined() ? loss + z : z;
  }
  return run_state().loss_scale == 1 ? loss : scale(loss, run_state().loss_scale);
}

// Each rank adds the terms of the probabilities it has: sum over its tokens of w_e p_e. w_e = aux_loss E f_e / (S T),
// with S sequences of T tokens in the global batch. Only counts are communicated, and they have no gradient.
Tensor Router::balance_loss(const Tensor& probabilities, const Tensor& own_counts, double sequences,
                            double length) const {
  Tensor counts = clone(own_counts);  // [B, E]
  double measured = length;           // tokens that a count covers
  if (options_.balance == BalanceScope::batch) {
    // f_e is known only after the last forward of the step, and with several micro-batches some backwards run earlier.
    const std::int64_t in_pass = own_counts.size(0) * mesh().size(Axis::dp);
    require(in_pass == run_state().step_sequences, "router",
            "{}: BalanceScope::batch needs all sequences of the step in one micro-batch; expected {} of them, got {}; "
            "use one micro-batch, or BalanceScope::sequence",
            name(), run_state().step_sequences, in_pass);
    const Tensor each = counts;
    counts = Tensor::empty({1, options_.count}, DType::f64);
    kernels(counts.device()).reduce(Reduction::sum, each, counts);
    mesh().group(Axis::data).all_reduce(counts).wait();
    measured *= sequences;
  } else {
    mesh().group(Axis::cp).all_reduce(counts).wait();
  }
  if (parallelism_.sequence) mesh().group(Axis::tp).all_reduce(counts).wait();
  const double experts = static_cast<double>(options_.count), choices = measured * static_cast<double>(options_.top_k);
  const Tensor weights = scale(counts, options_.aux_loss * experts / choices / (sequences * length));
  return sum(probabilities * reshape(cast(weights, probabilities.dtype()).to(probabilities.device()),
                                     {counts.size(0), 1, options_.count}));
}

Tensor top_k(const Tensor& x, std::int64_t k) {
  const std::int64_t width = x.size(-1), rows = width == 0 ? 0 : x.count() / width;
  require(k >= 1 && k <= width, "top_k", "{} of {} cannot be chosen", k, width);
  Tensor chosen = Tensor::empty({rows, k}, DType::i32, x.device());
  kernels(x.device()).top_k(view::reshape(contiguous(x), {rows, width}), chosen);
  return view::reshape(chosen, x.shape().with(-1, k));
}

}  // namespace trireme::nn
