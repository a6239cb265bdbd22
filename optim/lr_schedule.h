// Learning-rate schedules: a pure function of the step, so that resuming needs no state.
// Read next: optim/optimizer.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace trireme::optim {

/// How the rate falls after the warm-up: LrSchedule::at().
enum class LrShape : std::uint8_t { cosine, linear, constant, wsd };
std::string_view name(LrShape shape);                    ///< "cosine", "linear", "constant", "wsd"
std::optional<LrShape> lr_shape(std::string_view name);  ///< empty for an unknown name
std::vector<std::string_view> lr_shape_names();          ///< all names

/// The learning rate of each step; see at(). It falls only if decay_end is set: LrSchedule{.lr = 3e-4} is constant.
struct LrSchedule {
  LrShape shape = LrShape::cosine;
  double lr = 1e-3;                   ///< the peak
  double min_lr = 0;                  ///< what decay ends at
  std::int64_t warmup_steps = 0;      ///< the rate of step n of these, from 0, is lr (n + 1) / (warmup_steps + 1)
  std::optional<double> warmup_lr{};  ///< if set, it is warmup_lr + (lr - warmup_lr) n / warmup_steps; may be 0
  /// The step from which the rate falls; until then it stays at lr. Not set: the end of the warm-up. wsd needs it.
  std::optional<std::int64_t> decay_begin{};
  std::int64_t decay_end = 0;  ///< the step at which it is min_lr, where it stays; 0: it never falls

  /// The learning rate of update number `step`, counted from 0. Throws ExitCode::usage if min_lr is above lr, if
  /// decay_begin or min_lr is set and decay_end is not, and if the decay begins in the warm-up or after its own end.
  ///   cosine: min_lr + (lr - min_lr) (1 + cos(pi r)) / 2, r: the fraction of the way from decay_begin to decay_end
  ///   linear: lr + (min_lr - lr) r
  ///   wsd: as linear; decay_begin is late in the run (Hu et al. 2024, section 4)
  ///   constant: lr, without decay
  double at(std::int64_t step) const;
};

}  // namespace trireme::optim
