#include "train/validate.h"

#include <algorithm>

namespace trireme {
namespace {

/// "1, 2 or 4": the divisors of n.
std::string divisors(std::int64_t n) {
  std::vector<std::int64_t> found;
  for (std::int64_t d = 1; d <= n && d <= 4096; ++d)
    if (n % d == 0) found.push_back(d);
  std::string text;
  for (std::size_t i = 0; i < found.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == found.size() ? " or " : ", ", found[i]);
  return text;
}

/// Refuses a flag that was changed although the chosen `--chooser choice` has no use for it.
void refuse_unused(bool changed, const char* flag, const char* chooser, std::string_view choice, const char* users) {
  if (!changed) return;
  fail(ExitCode::usage, chooser, "--{} has no effect with --{} {}; expected --{} {}; drop --{} or change --{}", flag,
       chooser, choice, chooser, users, flag, chooser);
}

void validate_axes(const MeshShape& mesh) {
  for (const Axis axis : {Axis::cp, Axis::ep}) {
    if (mesh.size(axis) > 1)
      fail(ExitCode::usage, "--mesh", "{}={}: this model has nothing to share over {}; leave it out of --mesh",
           name(axis), mesh.size(axis), name(axis));
  }
}

void validate_schedule(const ScheduleOptions& o) {
  if (o.lr_schedule == optim::LrShape::constant) {
    refuse_unused(o.min_lr.has_value(), "min-lr", "lr-schedule", name(o.lr_schedule), "cosine, linear or wsd");
    refuse_unused(o.decay_steps.has_value(), "decay-steps", "lr-schedule", name(o.lr_schedule),
                  "cosine, linear or wsd");
  }
  if (o.min_lr && *o.min_lr > o.lr)
    fail(ExitCode::usage, "schedule", "--min-lr {} is above --lr {}; expected at most {}; change --min-lr or --lr",
         *o.min_lr, o.lr, o.lr);
  if (o.warmup_steps > o.steps)
    fail(ExitCode::usage, "schedule",
         "--warmup-steps {} is more than --steps {}; expected at most {}; change --warmup-steps or --steps",
         o.warmup_steps, o.steps, o.steps);
  if (o.lr_schedule == optim::LrShape::wsd) {
    if (o.warmup_steps + o.decay() > o.steps)
      fail(ExitCode::usage, "schedule",
           "--warmup-steps {} + --decay-steps {} = {} is more than --steps {}; with wsd the decay fills the last "
           "steps; change --decay-steps, --warmup-steps or --steps",
           o.warmup_steps, o.decay(), o.warmup_steps + o.decay(), o.steps);
  } else if (o.decay_steps && *o.decay_steps < o.warmup_steps) {
    fail(ExitCode::usage, "schedule",
         "--decay-steps {} comes before --warmup-steps {} are over; expected at least {}; change --decay-steps or "
         "--warmup-steps",
         *o.decay_steps, o.warmup_steps, o.warmup_steps);
  }
}

void validate_optimizer(const OptimizerOptions& o) {
  const OptimizerOptions initial;
  if (o.optimizer == "adamw")
    refuse_unused(o.momentum != initial.momentum, "momentum", "optimizer", o.optimizer, "sgd");
  if (o.optimizer == "sgd") {
    refuse_unused(o.beta1 != initial.beta1, "beta1", "optimizer", o.optimizer, "adamw");
    refuse_unused(o.beta2 != initial.beta2, "beta2", "optimizer", o.optimizer, "adamw");
    refuse_unused(o.eps != initial.eps, "eps", "optimizer", o.optimizer, "adamw");
  }
}

void validate_run(const TrainOptions& o) {
  if (o.run.eval_every > 0 && o.data.val_fraction == 0)
    fail(ExitCode::usage, "run",
         "--eval-every {} needs validation text, and --val-fraction is 0; expected a fraction above 0; change "
         "--val-fraction or drop --eval-every",
         o.run.eval_every);
  if (o.run.sample_every > 0 && o.run.sample_every > o.schedule.steps)
    fail(ExitCode::usage, "run",
         "--sample-every {} is more than --steps {}: no sample would be made; expected at most {}; change "
         "--sample-every",
         o.run.sample_every, o.schedule.steps, o.schedule.steps);
}

}  // namespace

void validate_model(const GptConfig& model, const MeshShape& mesh) {
  const int tp = mesh.size(Axis::tp), pp = mesh.size(Axis::pp);
  if (model.width % model.heads != 0)
    fail(ExitCode::usage, "model",
         "--width {} is not a multiple of --heads {}: {} / {} leaves {}; expected --heads that divide the width; "
         "change --width or --heads",
         model.width, model.heads, model.width, model.heads, model.width % model.heads);
  if (model.heads % tp != 0)
    fail(ExitCode::usage, "model",
         "--heads {} cannot be shared by tp={} ranks: {} / {} leaves {}; expected tp of {}; change --heads, or tp in "
         "--mesh",
         model.heads, tp, model.heads, tp, model.heads % tp, divisors(model.heads));
  if (model.layers < pp)
    fail(ExitCode::usage, "model",
         "--layers {} are fewer than pp={} stages, and a stage holds at least one layer; expected pp of at most {}; "
         "change --layers, or pp in --mesh",
         model.layers, pp, model.layers);
}

void validate(const TrainOptions& options) {
  validate_axes(options.mesh.shape);
  validate_model(options.model.config, options.mesh.shape);
  validate_schedule(options.schedule);
  validate_optimizer(options.optimizer);
  validate_run(options);
  options.precision.recompute_plan();  // both refuse what they cannot be
  options.precision.make_scaler();
}

}  // namespace trireme
