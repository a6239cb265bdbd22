#include "train/step/evaluate.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "parallel/comm/texts.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/schedule.h"
#include "train/program/leave_agreement.h"

namespace trireme {

double validation_loss(Model& model, const ValidationSource& samples, std::int64_t batch,
                       const std::function<void(std::int64_t done, std::int64_t all)>& progress,
                       const std::optional<Shape>& hidden) {
  return validation_loss_unless(nullptr, model, samples, batch, progress, hidden).value();
}

std::optional<double> validation_loss_unless(const std::function<bool()>& leave, Model& model,
                                             const ValidationSource& samples, std::int64_t batch,
                                             const std::function<void(std::int64_t done, std::int64_t all)>& progress,
                                             const std::optional<Shape>& hidden) {
  // Stages send ahead without waiting. Limiting the micro-batches in flight limits how many pile up between stages.
  constexpr std::int64_t most_at_once = 32;
  const Evaluating guard(model);
  const DeviceMesh& mesh = model.mesh();
  const std::int64_t dp = mesh.size(Axis::dp), per_round = batch * dp;
  const std::int64_t rounds = (samples.count() + per_round - 1) / per_round;
  const double scale = 1.0 / static_cast<double>(samples.targets());
  const bool one_stage = mesh.size(Axis::pp) == 1 && model.chunks() == 1;
  LeaveAgreement agreement(mesh.world(), leave);
  bool leaving = false;
  double loss = 0;
  for (std::int64_t first = 0; first < rounds; first += most_at_once) {
    leaving = leaving || (!one_stage && leave && any_rank(mesh.world(), leave()));
    if (leaving) return std::nullopt;
    const auto count = static_cast<int>(std::min(most_at_once, rounds - first));
    pipeline::Executor executor(pipeline::forward_only(mesh.size(Axis::pp), count, model.chunks()),
                                mesh.group(Axis::pp));
    const auto forward = [&](int s, const Tensor& input, int round) {
      leaving = leaving || (one_stage && agreement());
      if (leaving) return Tensor();  // the rest of these batches
      if (s == 0 && progress) progress(first + round, rounds);
      const std::int64_t sample = (first + round) * per_round + mesh.coord(Axis::dp) * batch;
      const Batch b = model.enter(samples.make_batch(sample, batch));
      const Tensor h = model.hidden(s, input, b);  // [B, T, D]
      return model.is_last_stage(s) ? model.loss(h, b, scale) : h;
    };
    loss += executor
                .run({.forward = forward,
                      .activation_shape = hidden.value_or(model.hidden_shape(batch)),
                      .dtype = model.dtype(),
                      .device = model.device()})
                .loss.item();
  }
  if (leaving) return std::nullopt;
  return pipeline::global_loss(mesh, Tensor::full({1}, loss, DType::f64));
}

std::int64_t evaluation_interval(std::int64_t steps, std::int64_t samples, std::int64_t global_batch) {
  constexpr std::int64_t times = 20, most_share = 10, passes = 3;
  const auto ceil_div = [](std::int64_t a, std::int64_t b) { return (a - 1) / b + 1; };
  return std::max(ceil_div(steps, times), ceil_div(most_share * samples, passes * global_batch));
}

void require_finite(double val_loss, std::int64_t step, const std::string& remedy) {
  if (std::isfinite(val_loss)) return;
  fail(ExitCode::numerical, "train",
       "the validation loss after step {} is {}; expected a finite number; nothing was saved; {}", step,
       std::isnan(val_loss) ? "nan" : "infinite", remedy);
}

}  // namespace trireme
