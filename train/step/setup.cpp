#include "train/step/setup.h"

namespace trireme {

nn::Build make_build(const TrainOptions& o, std::shared_ptr<const DeviceMesh> mesh) {
  nn::Parallelism parallelism = o.mesh.parallelism();
  parallelism.recompute = o.precision.recompute_plan();
  return {std::move(mesh), o.precision.dtype, static_cast<std::uint64_t>(o.run.seed), parallelism,
          o.precision.tensor_device()};
}

std::unique_ptr<optim::Optimizer> make_optimizer(const OptimizerOptions& o, const ShardList& shards) {
  if (o.optimizer == "adamw") {
    return optim::make_adamw(
        shards, {.beta1 = o.beta1, .beta2 = o.beta2, .eps = o.eps, .weight_decay = o.weight_decay, .memory = o.memory});
  }
  return optim::make_sgd(shards, {.momentum = o.momentum, .weight_decay = o.weight_decay, .memory = o.memory});
}

optim::LrSchedule make_lr_schedule(const ScheduleOptions& o) {
  return {.shape = o.lr_schedule,
          .lr = o.lr,
          .min_lr = o.final_lr(),
          .warmup_steps = o.warmup_steps,
          .decay_begin = o.decay_begin(),
          .decay_end = o.decay_end()};
}

}  // namespace trireme
