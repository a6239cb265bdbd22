#include "train/step/setup.h"

#include <string>

#include "parallel/comm/texts.h"
#include "train/options/optimizer_kinds.h"

namespace trireme {

nn::Build make_build(const TrainOptions& o, std::shared_ptr<const DeviceMesh> mesh) {
  nn::Parallelism parallelism = o.mesh.parallelism();
  parallelism.recompute = o.precision.recompute_plan();
  nn::Build build(std::move(mesh), o.precision.dtype, static_cast<std::uint64_t>(o.run.seed), parallelism,
                  o.precision.tensor_device());
  if (o.run.loads_weights) build = build.to_be_loaded();
  return o.mesh.zero == 3 ? build.drawn_on_use() : build;
}

std::unique_ptr<Model> with_frozen(std::unique_ptr<Model> model, const std::string& patterns) {
  std::string entries;  // PATTERN=0,..
  for (const char character : patterns) entries += character == ',' ? "=0," : std::string(1, character);
  if (!entries.empty()) entries += "=0";
  const optim::ParameterFactors frozen("--freeze", entries);
  frozen.require_matches(model->parameters(), "parameter", model->mesh());
  bool changed = false;
  for (const ParameterPtr& parameter : model->parameters()) {
    if (frozen.of(parameter->name) != 0) continue;
    changed = changed || parameter->requires_grad();
    parameter->set_requires_grad(false);
  }
  ProcessGroup& world = model->mesh().world();
  if (!patterns.empty() && !any_rank(world, changed))
    fail(ExitCode::usage, "--freeze",
         "'{}' matches only parameters that are not trained anyway: with --lora-rank, all but those of adapters; "
         "expected patterns of trained ones; drop --freeze",
         patterns);
  if (!any_rank(world, !trained(model->parameters()).empty()))
    fail(ExitCode::usage, "--freeze",
         "'{}' matches all parameters, so nothing would be trained; expected patterns that leave some; change "
         "--freeze",
         patterns);
  return model;
}

std::unique_ptr<optim::Optimizer> make_optimizer(const TrainOptions& options, const ShardList& shards,
                                                 const DeviceMesh& mesh) {
  std::unique_ptr<optim::Optimizer> optimizer = kind_of(options.optimizer).make(options, shards, mesh);
  const optim::ParameterFactors lr("--lr-factor", options.optimizer.lr_factor),
      decay("--decay-factor", options.optimizer.decay_factor);
  optimizer->set_factors(lr, decay, mesh);
  if (options.optimizer.moments == DType::bf16)
    optimizer->store_moments_in_bf16(static_cast<std::uint64_t>(options.run.seed));
  if (options.optimizer.ema_decay) optimizer->average_weights(*options.optimizer.ema_decay);
  return optimizer;
}

optim::LrSchedule make_lr_schedule(const ScheduleOptions& o) {
  return {.shape = o.lr_schedule,
          .lr = o.lr,
          .min_lr = o.final_lr(),
          .warmup_steps = o.warmup_steps,
          .warmup_lr = o.warmup_lr,
          .decay_begin = o.decay_begin(),
          .decay_end = o.decay_end()};
}

}  // namespace trireme
