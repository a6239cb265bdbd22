#include "optim/optimizer.h"

#include "core/kernels.h"

namespace trireme::optim {

Optimizer::Optimizer(const nn::ParameterList& parameters) {
  const MemoryScope scope(MemoryCategory::optimizer);
  for (const nn::ParameterPtr& parameter : parameters) {
    const Tensor value = parameter->value.detach();
    slots_.push_back({.parameter = parameter, .master = cast(value, DType::f32), .moments = {}});
  }
}

void Optimizer::refresh_masters() {
  for (Slot& slot : slots_) {
    if (slot.low().defined()) copy(slot.parameter->value, slot.master);
  }
}

std::vector<StateTensor> Optimizer::state_named(const std::vector<std::string>& moment_names) {
  std::vector<StateTensor> tensors;
  for (Slot& slot : slots_) {
    for (std::size_t i = 0; i < slot.moments.size(); ++i) {
      tensors.push_back({moment_names[i], slot.parameter.get(), slot.moments[i]});
    }
    if (slot.low().defined()) tensors.push_back({"master", slot.parameter.get(), slot.master});
  }
  return tensors;
}

namespace {

class AdamW final : public Optimizer {
 public:
  AdamW(const nn::ParameterList& parameters, const AdamWConfig& config) : Optimizer(parameters), config_(config) {
    const MemoryScope scope(MemoryCategory::optimizer);
    for (Slot& slot : slots_) {
      for (int moment = 0; moment < 2; ++moment) slot.moments.push_back(Tensor::zeros(slot.master.shape()));
    }
  }

  void step(double lr, double gradient_scale) override {
    ++steps_;
    AdamWOptions options{.lr = lr,
                         .beta1 = config_.beta1,
                         .beta2 = config_.beta2,
                         .eps = config_.eps,
                         .weight_decay = 0,
                         .gradient_scale = gradient_scale,
                         .step = steps_};
    for (Slot& slot : slots_) {
      options.weight_decay = slot.parameter->decay ? config_.weight_decay : 0;
      Tensor low = slot.low();
      kernels(slot.master.device())
          .adamw(options, slot.parameter->grad(), slot.master, slot.moments[0], slot.moments[1], low);
    }
  }

  std::vector<StateTensor> state() override { return state_named({"m", "v"}); }

 private:
  AdamWConfig config_;
};

class Sgd final : public Optimizer {
 public:
  Sgd(const nn::ParameterList& parameters, const SgdConfig& config) : Optimizer(parameters), config_(config) {
    if (config.momentum == 0) return;
    const MemoryScope scope(MemoryCategory::optimizer);
    for (Slot& slot : slots_) slot.moments.push_back(Tensor::zeros(slot.master.shape()));
  }

  void step(double lr, double gradient_scale) override {
    ++steps_;
    for (Slot& slot : slots_) {
      Tensor low = slot.low(), momentum = slot.moments.empty() ? Tensor() : slot.moments[0];
      kernels(slot.master.device())
          .sgd(lr, config_.momentum, slot.parameter->decay ? config_.weight_decay : 0, gradient_scale,
               slot.parameter->grad(), slot.master, momentum, low);
    }
  }

  std::vector<StateTensor> state() override { return state_named({"momentum"}); }

 private:
  SgdConfig config_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const nn::ParameterList& parameters, const AdamWConfig& config) {
  return std::make_unique<AdamW>(parameters, config);
}

std::unique_ptr<Optimizer> make_sgd(const nn::ParameterList& parameters, const SgdConfig& config) {
  return std::make_unique<Sgd>(parameters, config);
}

}  // namespace trireme::optim
