#include "optim/optimizer.h"

#include <iterator>
#include <numeric>

#include "core/kernels.h"

namespace trireme::optim {

Optimizer::Optimizer(const ShardList& shards, std::vector<std::string> moment_names, MemoryCategory memory)
    : moment_names_(std::move(moment_names)), offloaded_(memory == MemoryCategory::offloaded) {
  const MemoryScope scope(memory);
  for (const ShardPtr& shard : shards) {
    Slot slot{.shard = shard, .master = {}, .moments = {}};
    if (shard->weights.dtype() != DType::f32) slot.master = cast(shard->weights.to(device_of(*shard)), DType::f32);
    for (std::size_t i = 0; i < moment_names_.size(); ++i)
      slot.moments.push_back(Tensor::zeros(shard->shape(), DType::f32, device_of(*shard)));
    slots_.push_back(std::move(slot));
  }
}

void Optimizer::step(double lr, const GradientScale& scale) {
  ++steps_;
  if (gradients_ != nullptr) {
    gradients_->update([&](std::span<const std::size_t> places) { update(places, lr, scale); });
    return;
  }
  for (const Slot& slot : slots_)
    require(slot.shard->group == nullptr, "optimizer",
            "{} is sharded over data-parallel ranks, and nothing sums its gradient; expected attach() before step()",
            slot.shard->parameter->name);
  std::vector<std::size_t> all(slots_.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  update(all, lr, scale);
}

void Optimizer::attach(DataParallel& gradients) {
  gradients.hash_shards(state());
  gradients_ = &gradients;
}

void Optimizer::update(std::span<const std::size_t> places, double lr, const GradientScale& scale) {
  batch_.clear();
  for (const std::size_t i : places) {
    Slot& slot = slots_[i];
    if (slot.shard->shape().count() == 0) continue;
    Operands operands = operands_of(slot);
    Tensor weights = slot.shard->weights;
    if (operands.master.device() == weights.device()) {
      batch_.push_back(std::move(operands));
      continue;
    }
    // Offloaded shards are updated one by one, so that only one gradient at a time has a copy on the host.
    apply({&operands, 1}, lr, scale);
    copy(operands.low_precision.defined() ? operands.low_precision : operands.master, weights);
  }
  if (!batch_.empty()) apply(batch_, lr, scale);
  batch_.clear();
}

Optimizer::Operands Optimizer::operands_of(Slot& slot) const {
  const Shard& shard = *slot.shard;
  const bool low = slot.master.defined();
  const Device device = device_of(shard);
  const Tensor weights = shard.weights.to(device);  // a copy on the host where the state is offloaded
  return {.gradient = (shard.gradient.defined() ? shard.gradient : shard.parameter->grad()).to(device),
          .master = low ? slot.master : weights,
          .low_precision = low ? weights : Tensor(),
          .moments = slot.moments,
          .decay = shard.parameter->decay};
}

Device Optimizer::device_of(const Shard& shard) const { return offloaded_ ? Device::cpu : shard.weights.device(); }

std::vector<StateTensor> Optimizer::state() {
  if (gradients_ != nullptr) gradients_->finish_gathers();
  std::vector<StateTensor> tensors;
  for (Slot& slot : slots_) {
    const Parameter* parameter = slot.shard->parameter.get();
    for (std::size_t i = 0; i < slot.moments.size(); ++i)
      tensors.push_back({moment_names_[i], parameter, slot.moments[i], slot.shard});
    if (slot.master.defined()) tensors.push_back({"master", parameter, slot.master, slot.shard});
  }
  return tensors;
}

std::vector<StateTensor> Optimizer::weights() {
  if (gradients_ != nullptr) gradients_->finish_gathers();
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
      : Optimizer(shards, {"m", "v"}, config.memory), config_(config) {}

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
                          .weight_decay = o.decay ? config_.weight_decay : 0});
    }
    kernels(operands.front().master.device()).adamw(options, updates_);
    updates_.clear();
  }

  AdamWConfig config_;
  std::vector<AdamWUpdate> updates_;  // of a step; its memory stays
};

class Sgd final : public Optimizer {
 public:
  Sgd(const ShardList& shards, const SgdConfig& config)
      : Optimizer(shards, config.momentum == 0 ? std::vector<std::string>() : std::vector<std::string>{"momentum"},
                  config.memory),
        config_(config) {}

 private:
  void apply(std::span<const Operands> operands, double lr, const GradientScale& scale) override {
    updates_.clear();
    for (const Operands& o : operands) {
      updates_.push_back({.gradient = o.gradient,
                          .weight = o.master,
                          .momentum = o.moments.empty() ? Tensor() : o.moments[0],
                          .low = o.low_precision,
                          .weight_decay = o.decay ? config_.weight_decay : 0});
    }
    kernels(operands.front().master.device())
        .sgd({.lr = lr, .momentum = config_.momentum, .gradient_scale = scale.value, .scale_there = scale.on_device},
             updates_);
    updates_.clear();
  }

  SgdConfig config_;
  std::vector<SgdUpdate> updates_;  // of a step; its memory stays
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const ShardList& shards, const AdamWConfig& config) {
  return std::make_unique<AdamW>(shards, config);
}

std::unique_ptr<Optimizer> make_adamw(const ParameterList& parameters, const AdamWConfig& config) {
  return make_adamw(whole_shards(parameters), config);
}

std::unique_ptr<Optimizer> make_sgd(const ShardList& shards, const SgdConfig& config) {
  return std::make_unique<Sgd>(shards, config);
}

std::unique_ptr<Optimizer> make_sgd(const ParameterList& parameters, const SgdConfig& config) {
  return make_sgd(whole_shards(parameters), config);
}

}  // namespace trireme::optim
