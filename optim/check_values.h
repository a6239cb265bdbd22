// Checks of the numbers in an optimizer's configuration. `where`: the optimizer, for the message.
#pragma once

#include "core/error.h"
#include "optim/optimizer.h"

namespace trireme::optim {

inline void check_factor(const char* where, const char* name, double value) {
  if (!(value >= 0 && value < 1)) fail(ExitCode::usage, where, "{} is {}; expected 0 <= {} < 1", name, value, name);
}

inline void check_not_negative(const char* where, const char* name, double value) {
  if (!(value >= 0)) fail(ExitCode::usage, where, "{} is {}; expected at least 0", name, value);
}

inline void check_values(const char* where, const AdamWConfig& config) {
  check_factor(where, "beta1", config.beta1);
  check_factor(where, "beta2", config.beta2);
  check_not_negative(where, "eps", config.eps);
  check_not_negative(where, "weight_decay", config.weight_decay);
}

}  // namespace trireme::optim
