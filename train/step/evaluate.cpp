#include "train/step/evaluate.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/schedule.h"

namespace trireme {

double validation_loss(Model& model, const ValidationSource& samples, std::int64_t batch) {
  // Stages send ahead without waiting. Limiting the micro-batches in flight limits how many pile up between stages.
  constexpr std::int64_t most_at_once = 32;
  const Evaluating guard(model);
  const DeviceMesh& mesh = model.mesh();
  const std::int64_t dp = mesh.size(Axis::dp), per_round = batch * dp;
  const std::int64_t rounds = (samples.count() + per_round - 1) / per_round;
  const double scale = 1.0 / static_cast<double>(samples.targets());
  double loss = 0;
  for (std::int64_t first = 0; first < rounds; first += most_at_once) {
    const auto count = static_cast<int>(std::min(most_at_once, rounds - first));
    pipeline::Executor executor(pipeline::forward_only(mesh.size(Axis::pp), count, model.chunks()),
                                mesh.group(Axis::pp));
    const auto forward = [&](int s, const Tensor& input, int round) {
      const std::int64_t sample = (first + round) * per_round + mesh.coord(Axis::dp) * batch;
      const Batch b = model.enter(samples.make_batch(sample, batch));
      const Tensor hidden = model.hidden(s, input, b);  // [B, T, D]
      return model.is_last_stage(s) ? model.loss(hidden, b, scale) : hidden;
    };
    loss += executor
                .run({.forward = forward,
                      .activation_shape = model.hidden_shape(batch),
                      .dtype = model.dtype(),
                      .device = model.device()})
                .loss.item();
  }
  return pipeline::global_loss(mesh, Tensor::full({1}, loss, DType::f64));
}

std::int64_t evaluation_interval(std::int64_t steps, std::int64_t samples, std::int64_t global_batch) {
  constexpr std::int64_t times = 20, most_share = 10, passes = 3;
  const auto divided_up = [](std::int64_t a, std::int64_t b) { return (a - 1) / b + 1; };
  return std::max(divided_up(steps, times), divided_up(most_share * samples, passes * global_batch));
}

void require_finite(double val_loss, std::int64_t step) {
  if (std::isfinite(val_loss)) return;
  fail(ExitCode::numerical, "train",
       "the validation loss after step {} is {}; expected a finite number; nothing was saved; lower --lr or raise "
       "--warmup-steps",
       step, std::isnan(val_loss) ? "nan" : "infinite");
}

}  // namespace trireme
