#include "optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>

#include "core/kernels.h"
#include "core/random.h"
#include "optim/check_values.h"

namespace trireme::optim {

Optimizer::Optimizer(std::string name, const ShardList& shards, std::vector<std::string> moment_names,
                     MemoryCategory memory, const MomentsOf& moments_of)
    : name_(std::move(name)), moment_names_(std::move(moment_names)), offloaded_(memory == MemoryCategory::offloaded) {
  const MemoryScope scope(memory);
  ParameterList parameters;
  for (const ShardPtr& shard : shards) parameters.push_back(shard->parameter);
  later_ = LaterParameters(parameters);
  for (const ShardPtr& shard : shards) {
    shard->parameter->optimizer = exists_;
    Slot slot;
    slot.shard = shard;
    slot.frozen = !shard->parameter->requires_grad();
    if (slot.frozen) {
      slots_.push_back(std::move(slot));
      continue;
    }
    slot.names = moment_names_;
    if (moments_of) slot.names = moments_of(*shard->parameter);
    if (shard->weights.dtype() != DType::f32) {
      slot.master = cast(shard->weights.to(device_of(*shard)), DType::f32);
      shard->parameter->optimizer_copy = slot.master.storage();
    }
    for (std::size_t i = 0; i < slot.names.size(); ++i)
      slot.moments.push_back(Tensor::zeros(shard->shape(), DType::f32, device_of(*shard)));
    slots_.push_back(std::move(slot));
  }
  note_versions();
}

void Optimizer::step(double lr, double gradient_scale) {
  if (!std::isfinite(gradient_scale))
    fail(
        ExitCode::numerical, "optimizer",
        "gradients are to be multiplied by {}; expected a finite number; the norm of the gradients or the loss may not "
        "be finite: check them before the step",
        gradient_scale);
  step(lr, GradientScale{gradient_scale, {}});
}

void Optimizer::step(double lr, const GradientScale& scale) {
  require(lr >= 0 && std::isfinite(lr), "optimizer", "the learning rate is {}; expected a finite number of at least 0",
          lr);
  for (const Slot& slot : slots_)
    if (slot.frozen && slot.shard->parameter->requires_grad())
      fail(ExitCode::usage, "optimizer",
           "{} was frozen when the optimizer was made, and has no state; expected parameters that are trained from the "
           "beginning; unfreeze it first, then make the optimizer",
           slot.shard->parameter->name);
  if (swapped_)
    fail(ExitCode::usage, "optimizer",
         "the weights are the averages; expected the weights that are trained; call swap_average() once more before");
  later_.require_updated("optimizer");
  if (DataParallel* const attached = gradients(); attached != nullptr) {
    attached->require_summed("optimizer");
  } else {
    require_own_gradients();
  }
  require_masters_current();
  ++steps_;
  prepare(scale);
  over_shards([&](std::span<const std::size_t> places) { update_shards(places, lr, scale); });
  note_versions();
}

// What attach() was given decides in which order, and communicates in between.
void Optimizer::over_shards(const DataParallel::UpdateShards& change) {
  if (DataParallel* const attached = gradients(); attached != nullptr) {
    attached->update(change);
  } else {
    change(all_places());
  }
}

void Optimizer::require_own_gradients() const {
  for (const Slot& slot : slots_) {
    require(slot.shard->group == nullptr, "optimizer",
            "{} is sharded over data-parallel ranks, and nothing sums its gradient; expected attach() before step()",
            slot.shard->parameter->name);
    if (slot.shard->parameter->requires_grad()) static_cast<void>(gradient_of(*slot.shard));
  }
}

void Optimizer::note_versions() {
  for (Slot& slot : slots_) slot.version = slot.shard->weights.version();
}

// The version also grows if nothing was changed (a pointer that was only read through), or if the master was changed
// as well (a loaded checkpoint). So the values decide.
void Optimizer::require_masters_current() {
  for (Slot& slot : slots_) {
    const Tensor& weights = slot.shard->weights;
    if (!slot.master.defined() || slot.version == weights.version()) continue;
    const Tensor mine = cast(cast(slot.master.to(Device::cpu), weights.dtype()), DType::f32);
    const Tensor theirs = contiguous(cast(weights.to(Device::cpu), DType::f32));
    const auto a = mine.span<const float>(), b = theirs.span<const float>();
    const auto alike = [](float x, float y) { return x == y || (std::isnan(x) && std::isnan(y)); };
    const auto at = std::mismatch(a.begin(), a.end(), b.begin(), alike);
    if (at.first != a.end())
      fail(ExitCode::usage, "optimizer",
           "{} was changed since the optimizer was made or made its last step, and the f32 copy of it that an update "
           "begins with was not: element {} is {}, and {} in the copy; expected the same; change weights before the "
           "optimizer is made, or call its read_weights() after the change",
           slot.shard->parameter->name, at.first - a.begin(), *at.second, *at.first);
    slot.version = weights.version();
  }
}

void Optimizer::read_weights() {
  if (DataParallel* const attached = gradients(); attached != nullptr) {
    attached->finish_gathers();
    attached->forget_hashes();
  }
  for (Slot& slot : slots_)
    if (slot.master.defined()) copy(slot.shard->weights, slot.master);
  note_versions();
}

std::vector<std::size_t> Optimizer::all_places() const {
  std::vector<std::size_t> all(slots_.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

const Tensor& Optimizer::gradient_of(const Shard& shard) {
  if (!shard.gradient.defined()) shard.parameter->require_summed("optimizer");
  const Tensor& gradient = shard.gradient.defined() ? shard.gradient : shard.parameter->defined_grad("optimizer");
  require(gradient.shape() == shard.weights.shape() && gradient.dtype() == DType::f32 && gradient.contiguous(),
          "optimizer", "the gradient of {} is {} {}; expected a dense f32 {}, as the weights", shard.parameter->name,
          trireme::name(gradient.dtype()), gradient.shape(), shard.weights.shape());
  return gradient;
}

void Optimizer::attach(DataParallel& gradients) {
  const ShardList& shards = gradients.shards();
  const bool same = shards.size() == slots_.size() &&
                    std::equal(shards.begin(), shards.end(), slots_.begin(),
                               [](const ShardPtr& shard, const Slot& slot) { return shard == slot.shard; });
  if (!same)
    fail(ExitCode::usage, "optimizer",
         "attach() was given a Zero or Replicated of {} shards, which are not the {} of this optimizer; expected the "
         "one "
         "whose shards() the optimizer was made with; make_adamw(zero.shards(), ..), then attach(zero)",
         shards.size(), slots_.size());
  gradients.hash_shards(state());
  gradients_ = &gradients;
  gradients_lifetime_ = gradients.lifetime();
}

DataParallel* Optimizer::gradients() const {
  if (gradients_ != nullptr && gradients_lifetime_.expired())
    fail(ExitCode::usage, "optimizer",
         "the Zero or Replicated that was given to attach() no longer exists; expected one that lives as long as the "
         "optimizer is used; make it before the optimizer, in the same scope");
  return gradients_;
}

void Optimizer::update_shards(std::span<const std::size_t> places, double lr, const GradientScale& scale) {
  change_weights(places, true, [&](std::span<const Operands> operands) {
    apply_by_rate(operands, lr, scale);
    for (const Operands& o : operands) {
      Tensor average = o.average;
      if (average.defined()) kernels(average.device()).axpby(1 - *average_decay_, o.master, *average_decay_, average);
    }
  });
}

void Optimizer::apply_by_rate(std::span<const Operands> operands, double lr, const GradientScale& scale) {
  if (!has_lr_factors_) return apply(operands, lr, scale);
  std::map<double, std::vector<Operands>> by_factor;
  for (const Operands& o : operands) by_factor[o.lr_factor].push_back(o);
  for (const auto& [factor, some] : by_factor) apply(some, lr * factor, scale);
}

void Optimizer::change_weights(std::span<const std::size_t> places, bool with_gradients, const Change& change) {
  batch_.clear();
  for (const std::size_t i : places) {
    Slot& slot = slots_[i];
    if (slot.shard->shape().count() == 0 || !slot.shard->parameter->requires_grad()) continue;
    Operands operands = operands_of(slot, with_gradients);
    Tensor weights = slot.shard->weights;
    weights.mark_written();
    const bool offloaded = operands.master.device() != weights.device();
    const bool rounds = with_gradients && rounding_seed_.has_value();
    if (!offloaded && !rounds) {
      batch_.push_back(std::move(operands));
      continue;
    }
    // One by one, so that only one gradient at a time has a copy on the host, and one shard's moments a copy in f32.
    change({&operands, 1});
    for (std::size_t m = 0; rounds && m < slot.moments.size(); ++m) set_moment(slot, m, operands.moments[m]);
    if (offloaded) copy(operands.low_precision.defined() ? operands.low_precision : operands.master, weights);
  }
  if (!batch_.empty()) change(batch_);
  batch_.clear();
}

Optimizer::Operands Optimizer::operands_of(Slot& slot, bool with_gradient) const {
  const Shard& shard = *slot.shard;
  const bool low = slot.master.defined();
  const Device device = device_of(shard);
  const Tensor weights = shard.weights.to(device);  // a copy on the host where the state is offloaded
  std::vector<Tensor> moments;
  for (std::size_t i = 0; with_gradient && i < slot.moments.size(); ++i) moments.push_back(moment(slot, i));
  return {.gradient = with_gradient ? gradient_of(shard).to(device) : Tensor(),
          .master = low ? slot.master : weights,
          .low_precision = low ? weights : Tensor(),
          .moments = std::move(moments),
          .average = slot.average,
          .lr_factor = slot.lr_factor,
          .decay = shard.parameter->decay ? slot.decay_factor : 0,
          .parameter = shard.parameter.get()};
}

void Optimizer::set_factors(const ParameterFactors& lr, const ParameterFactors& decay, const DeviceMesh* mesh) {
  ParameterList parameters, decaying;
  for (const Slot& slot : slots_) {
    parameters.push_back(slot.shard->parameter);
    if (slot.shard->parameter->decay) decaying.push_back(slot.shard->parameter);
  }
  const auto check = [&](const ParameterFactors& factors, const ParameterList& of, const char* what) {
    mesh != nullptr ? factors.require_matches(of, what, *mesh) : factors.require_matches(of, what);
  };
  check(lr, parameters, "parameter");
  check(decay, decaying, "parameter with weight decay");
  for (Slot& slot : slots_) {
    slot.lr_factor = lr.of(slot.shard->parameter->name);
    slot.decay_factor = decay.of(slot.shard->parameter->name);
  }
  has_lr_factors_ = !lr.empty();
}

void Optimizer::store_moments_in_bf16(std::uint64_t seed) {
  require(steps_ == 0 && gradients_ == nullptr, "optimizer",
          "moments are to be stored in bf16 after attach() or step(); expected before");
  const MemoryScope scope(offloaded_ ? MemoryCategory::offloaded : MemoryCategory::optimizer);
  for (Slot& slot : slots_) {
    for (Tensor& stored : slot.moments) stored = Tensor::zeros(stored.shape(), DType::bf16, stored.device());
  }
  rounding_seed_ = seed;
}

void Optimizer::set_moment(Slot& slot, std::size_t i, const Tensor& value) const {
  constexpr std::uint64_t spread = 0x9E3779B97F4A7C15U;  // neighbouring steps get keys that differ in many bits
  Tensor& stored = slot.moments[i];
  const StateTensor named{slot.names[i], slot.shard->parameter.get(), {}, nullptr};
  kernels(stored.device())
      .round_at_random(value, *rounding_seed_ ^ static_cast<std::uint64_t>(steps_) * spread,
                       stream_of(named.full_name()), slot.shard->rectangle(), stored);
}

void Optimizer::average_weights(double decay) {
  check_factor("optimizer", "the decay of the average", decay);
  require(gradients_ == nullptr, "optimizer", "the average is to begin after attach(); expected it before");
  const MemoryScope scope(offloaded_ ? MemoryCategory::offloaded : MemoryCategory::optimizer);
  for (Slot& slot : slots_) {
    slot.average =
        clone(slot.master.defined() ? slot.master : cast(slot.shard->weights.to(device_of(*slot.shard)), DType::f32));
    if (!slot.master.defined()) slot.shard->parameter->optimizer_copy = slot.average.storage();
  }
  average_decay_ = decay;
}

void Optimizer::swap_average() {
  require(averages(), "optimizer", "there is no average of the weights; expected average_weights() before");
  swapped_ = !swapped_;
  over_shards([&](std::span<const std::size_t> places) {
    change_weights(places, false, [](std::span<const Operands> operands) {
      for (const Operands& o : operands) {
        Tensor average = o.average, master = o.master, low = o.low_precision;
        const Tensor weights = clone(master);
        copy(average, master);
        copy(weights, average);
        if (low.defined()) copy(master, low);
      }
    });
  });
  note_versions();
}

Device Optimizer::device_of(const Shard& shard) const { return offloaded_ ? Device::cpu : shard.weights.device(); }

std::vector<StateTensor> Optimizer::state() {
  if (DataParallel* const attached = gradients(); attached != nullptr) attached->finish_gathers();
  std::vector<StateTensor> tensors;
  for (Slot& slot : slots_) {
    const Parameter* parameter = slot.shard->parameter.get();
    for (std::size_t i = 0; i < slot.moments.size(); ++i)
      tensors.push_back({slot.names[i], parameter, slot.moments[i], slot.shard});
    if (slot.master.defined()) tensors.push_back({"master", parameter, slot.master, slot.shard});
    if (slot.average.defined()) tensors.push_back({"ema", parameter, slot.average, slot.shard});
  }
  return tensors;
}

std::vector<StateTensor> Optimizer::weights() {
  if (DataParallel* const attached = gradients(); attached != nullptr) attached->finish_gathers();
  std::vector<StateTensor> tensors;
  for (Slot& slot : slots_) {
    const Parameter* parameter = slot.shard->parameter.get();
    if (parameter->local.has_elements()) {
      tensors.push_back({"", parameter, parameter->local.detach(), nullptr});
    } else {
      tensors.push_back({"", parameter, slot.shard->weights, slot.shard});
    }
  }
  return tensors;
}

std::vector<StateTensor> Optimizer::weights_and_state() {
  std::vector<StateTensor> tensors = weights(), state_tensors = state();
  tensors.insert(tensors.end(), std::make_move_iterator(state_tensors.begin()),
                 std::make_move_iterator(state_tensors.end()));
  return tensors;
}

namespace {

class AdamW final : public Optimizer {
 public:
  AdamW(const ShardList& shards, const AdamWConfig& config)
      : Optimizer("adamw", shards, {"m", "v"}, config.memory), config_(config) {}

 private:
  void apply(std::span<const Operands> operands, double lr, const GradientScale& scale) override {
    const AdamWOptions options{.lr = lr,
                               .beta1 = config_.beta1,
                               .beta2 = config_.beta2,
                               .eps = config_.eps,
                               .gradient_scale = scale.value,
                               .step = steps(),
                               .scale_there = scale.on_device};
    updates_.clear();
    for (const Operands& o : operands) {
      updates_.push_back({.gradient = o.gradient,
                          .weight = o.master,
                          .m = o.moments[0],
                          .v = o.moments[1],
                          .low = o.low_precision,
                          .weight_decay = o.decay * config_.weight_decay});
    }
    kernels(operands.front().master.device()).adamw(options, updates_);
    updates_.clear();
  }

  AdamWConfig config_;
  std::vector<AdamWUpdate> updates_;  // of a step; its memory stays
};

/// SGD and Lion: optimizers of the kernel sgd(), with one moment or none.
class OneMoment final : public Optimizer {
 public:
  OneMoment(std::string name, const ShardList& shards, std::vector<std::string> moment_names, MemoryCategory memory,
            SgdOptions options, double weight_decay)
      : Optimizer(std::move(name), shards, std::move(moment_names), memory),
        options_(std::move(options)),
        weight_decay_(weight_decay) {}

 private:
  void apply(std::span<const Operands> operands, double lr, const GradientScale& scale) override {
    updates_.clear();
    for (const Operands& o : operands) {
      updates_.push_back({.gradient = o.gradient,
                          .weight = o.master,
                          .momentum = o.moments.empty() ? Tensor() : o.moments[0],
                          .low = o.low_precision,
                          .weight_decay = o.decay * weight_decay_});
    }
    options_.lr = lr;
    options_.gradient_scale = scale.value;
    options_.scale_there = scale.on_device;
    kernels(operands.front().master.device()).sgd(options_, updates_);
    options_.scale_there = {};
    updates_.clear();
  }

  SgdOptions options_;  // all but what changes from step to step
  double weight_decay_;
  std::vector<SgdUpdate> updates_;  // of a step; its memory stays
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const ShardList& shards, const AdamWConfig& config) {
  check_values("adamw", config);
  return std::make_unique<AdamW>(shards, config);
}

std::unique_ptr<Optimizer> make_adamw(const ParameterList& parameters, const AdamWConfig& config) {
  check_parameters("optimizer", parameters);
  return make_adamw(whole_shards(parameters), config);
}

std::unique_ptr<Optimizer> make_sgd(const ShardList& shards, const SgdConfig& config) {
  check_factor("sgd", "momentum", config.momentum);
  check_not_negative("sgd", "weight_decay", config.weight_decay);
  if (config.nesterov && config.momentum == 0)
    fail(ExitCode::usage, "sgd", "Nesterov's rule looks ahead along the momentum, got momentum 0; expected above 0");
  const SgdOptions options{.momentum = config.momentum,
                           .rule = config.nesterov ? SgdRule::nesterov : SgdRule::momentum};
  std::vector<std::string> moments;
  if (config.momentum > 0) moments = {"momentum"};
  return std::make_unique<OneMoment>("sgd", shards, std::move(moments), config.memory, options, config.weight_decay);
}

std::unique_ptr<Optimizer> make_sgd(const ParameterList& parameters, const SgdConfig& config) {
  check_parameters("optimizer", parameters);
  return make_sgd(whole_shards(parameters), config);
}

std::unique_ptr<Optimizer> make_lion(const ShardList& shards, const LionConfig& config) {
  check_factor("lion", "beta1", config.beta1);
  check_factor("lion", "beta2", config.beta2);
  check_not_negative("lion", "weight_decay", config.weight_decay);
  const SgdOptions options{.momentum = config.beta2, .rule = SgdRule::lion, .blend = config.beta1};
  return std::make_unique<OneMoment>("lion", shards, std::vector<std::string>{"m"}, config.memory, options,
                                     config.weight_decay);
}

std::unique_ptr<Optimizer> make_lion(const ParameterList& parameters, const LionConfig& config) {
  check_parameters("optimizer", parameters);
  return make_lion(whole_shards(parameters), config);
}

}  // namespace trireme::optim
