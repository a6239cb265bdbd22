#include "optim/lr_schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "core/error.h"

namespace trireme::optim {
namespace {

constexpr std::array<std::string_view, 4> names = {"cosine", "linear", "constant", "wsd"};

void check_decay(const LrSchedule& s) {
  if (s.decay_end == 0 && (s.decay_begin.value_or(0) > 0 || s.min_lr > 0))
    fail(ExitCode::usage, "lr_schedule",
         "the rate is to fall {}, but decay_end is not set; expected the step at which it is min_lr; set "
         "LrSchedule::decay_end",
         s.decay_begin.value_or(0) > 0 ? fmt::format("from step {} on", *s.decay_begin)
                                       : fmt::format("to a min_lr of {}", s.min_lr));
  if (s.decay_end == 0) return;
  if (s.min_lr > s.lr)
    fail(ExitCode::usage, "lr_schedule",
         "min_lr {} is above lr {}: the rate would rise; expected at most lr; set LrSchedule::min_lr, which is 0 by "
         "default",
         s.min_lr, s.lr);
  if (s.shape == LrShape::wsd && !s.decay_begin)
    fail(ExitCode::usage, "lr_schedule",
         "wsd without decay_begin; expected the step up to which the rate stays at lr; set LrSchedule::decay_begin, or "
         "take LrShape::linear");
  const std::int64_t begin = s.decay_begin.value_or(s.warmup_steps);
  if (begin < s.warmup_steps || begin > s.decay_end)
    fail(ExitCode::usage, "lr_schedule",
         "the rate is to fall from step {} to step {}, after {} steps of warm-up; expected a decay that begins after "
         "the warm-up and ends later; change decay_begin, decay_end or warmup_steps of LrSchedule",
         begin, s.decay_end, s.warmup_steps);
}

}  // namespace

std::string_view name(LrShape shape) { return names[static_cast<std::size_t>(shape)]; }

std::optional<LrShape> lr_shape(std::string_view text) {
  const auto* found = std::find(names.begin(), names.end(), text);
  if (found == names.end()) return std::nullopt;
  return static_cast<LrShape>(found - names.begin());
}

std::vector<std::string_view> lr_shape_names() { return {names.begin(), names.end()}; }

double LrSchedule::at(std::int64_t step) const {
  if (step < 0 || warmup_steps < 0 || !std::isfinite(lr) || lr < 0)
    fail(ExitCode::usage, "lr_schedule",
         "step {}, {} steps of warm-up and a rate of {}; expected numbers of at least 0", step, warmup_steps, lr);
  if (shape != LrShape::constant) check_decay(*this);
  if (step < warmup_steps) {
    if (!warmup_lr) return lr * static_cast<double>(step + 1) / static_cast<double>(warmup_steps + 1);
    return *warmup_lr + (lr - *warmup_lr) * static_cast<double>(step) / static_cast<double>(warmup_steps);
  }
  if (decay_end == 0) return lr;
  const std::int64_t begin = decay_begin.value_or(warmup_steps);
  const auto span = static_cast<double>(std::max<std::int64_t>(decay_end - begin, 1));
  const double way = std::clamp(static_cast<double>(step - begin) / span, 0.0, 1.0);
  switch (shape) {
    case LrShape::constant:
      return lr;
    case LrShape::cosine:
      return min_lr + (lr - min_lr) * 0.5 * (1.0 + std::cos(std::numbers::pi * way));
    case LrShape::linear:
    case LrShape::wsd:
      return lr + (min_lr - lr) * way;
  }
  return lr;
}

}  // namespace trireme::optim
