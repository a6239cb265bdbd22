// Loss scaling for f16 (Micikevicius et al. 2018, "Mixed Precision Training", section 3.2): the loss is multiplied by a
// power of two before backward so that small gradients do not become 0 in f16, and the gradients, which are summed in
// f32, are divided by it before clipping.
//
// The dynamic scale doubles after `window` updates in a row without overflow. The first `hysteresis` - 1 overflows
// leave it as it is, every further one halves it, until `window` updates in a row have succeeded again. A step
// overflowed if the norm of the whole gradient is not finite. The norm has the same bits on every rank, so all ranks
// decide alike without an extra message.
// Read next: train/step/trainer.cpp.
#pragma once

#include <cstdint>

namespace trireme::optim {

/// How the loss scale begins and changes.
struct LossScaleConfig {
  double initial = 65536;
  bool dynamic = true;          ///< false: always `initial`
  std::int64_t window = 2000;   ///< updates without overflow after which the scale doubles
  std::int64_t hysteresis = 2;  ///< overflows it takes to halve the scale
};

/// The loss scale of f16 training, and what happens after an overflow.
class LossScaler {
 public:
  static constexpr double smallest = 1, largest = 16777216;  // 2^24
  static constexpr std::int64_t patience = 20;               ///< overflows in a row that a fixed scale survives

  /// What a checkpoint stores.
  struct State {
    double scale = 1;
    std::int64_t good_updates = 0;    ///< in a row: since the last overflow or doubling
    std::int64_t overflows_left = 1;  ///< until the scale halves; 0: with every further one
    std::int64_t in_a_row = 0;        ///< overflows since the last update
    std::int64_t skipped = 0;         ///< steps, in the whole run
  };

  /// No scaling: the scale is 1, and an overflow is an error.
  LossScaler() = default;
  explicit LossScaler(const LossScaleConfig& config);

  bool active() const { return active_; }
  double scale() const { return state_.scale; }  ///< to multiply the loss by in the next backward
  std::int64_t skipped() const { return state_.skipped; }

  /// After a step whose gradient was finite.
  void updated();
  /// After a step whose gradient was not: weights, moments and counters stay as they are. Throws ExitCode::numerical
  /// when there is no scaling, when the scale cannot fall any further, or after too many overflows in a row of a fixed
  /// scale; `norm` is for the message.
  void overflowed(double norm);

  const State& state() const { return state_; }
  /// When resuming.
  void set_state(const State& state) { state_ = state; }

 private:
  LossScaleConfig config_;
  bool active_ = false;
  State state_;
};

}  // namespace trireme::optim
