#include "optim/loss_scaler.h"

#include "core/error.h"

namespace trireme::optim {

LossScaler::LossScaler(const LossScaleConfig& config) : config_(config), active_(true) {
  state_.scale = config.initial;
  state_.overflows_left = config.hysteresis;
}

void LossScaler::updated() {
  state_.in_a_row = 0;
  if (!active_ || !config_.dynamic || ++state_.good_updates < config_.window) return;
  state_.good_updates = 0;
  state_.overflows_left = config_.hysteresis;
  if (state_.scale < largest) state_.scale *= 2;
}

void LossScaler::overflowed(double norm) {
  if (!active_) {
    fail(ExitCode::numerical, "train",
         "the gradient norm is {}; expected a finite number; lower the learning rate (--lr) or the norm that is "
         "clipped to "
         "(--clip), or warm up for longer (--warmup-steps)",
         norm);
  }
  ++state_.skipped;
  ++state_.in_a_row;
  state_.good_updates = 0;
  if (config_.dynamic ? state_.scale <= smallest : state_.in_a_row > patience) {
    fail(ExitCode::numerical, "train",
         "the gradient norm is {} at a loss scale of {}, {}; expected a finite number; lower the learning rate (--lr) "
         "or "
         "the norm that is clipped to (--clip), warm up for longer (--warmup-steps){}, or use bf16 (--dtype)",
         norm, state_.scale,
         config_.dynamic ? "the smallest" : fmt::format("which is fixed, {} steps in a row", state_.in_a_row),
         config_.dynamic ? "" : ", lower the fixed scale (LossScaleConfig, --loss-scale)");
  }
  if (!config_.dynamic) return;
  if (state_.overflows_left > 0) --state_.overflows_left;
  if (state_.overflows_left == 0) state_.scale /= 2;
}

}  // namespace trireme::optim
