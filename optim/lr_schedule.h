// Learning-rate schedules: a pure function of the step, so that resuming needs no state.
// Read next: optim/optimizer.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace trireme::optim {

enum class LrShape : std::uint8_t { cosine, linear, constant, wsd };
std::string_view name(LrShape shape);
std::optional<LrShape> lr_shape(std::string_view name);  ///< empty for an unknown name
std::vector<std::string_view> lr_shape_names();

struct LrSchedule {
  LrShape shape = LrShape::cosine;
  double lr = 1e-3;               ///< the peak
  double min_lr = 1e-4;           ///< what decay ends at
  std::int64_t warmup_steps = 0;  ///< the rate of step n of these, from 0, is lr (n + 1) / (warmup_steps + 1)
  /// cosine, linear: the step at which min_lr is reached; wsd: how many steps the final decay takes
  std::int64_t decay_steps = 0;
  std::int64_t total_steps = 0;  ///< of the run: wsd reaches min_lr there

  /// The learning rate of update number `step`, counted from 0.
  ///   cosine: min_lr + (lr - min_lr) (1 + cos(pi r)) / 2, r: the fraction of the way from warm-up's end to decay_steps
  ///   linear: lr + (min_lr - lr) r
  ///   constant: lr
  ///   wsd: warm up, stay at lr, and go linearly to min_lr over the last decay_steps (Hu et al. 2024, section 4)
  double at(std::int64_t step) const;
};

}  // namespace trireme::optim
