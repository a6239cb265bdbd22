// What multiplies the gradients in an update: clipping and the loss scale in one factor. One formula for the host,
// which knows the norm, and for a kernel, which reads it in device memory. nvcc compiles constexpr functions for the
// GPU, too.
// Read next: update_scale in core/kernels.h.
#pragma once

#include <limits>

namespace trireme {

/// The factor that brings `norm` down to `max_norm`; 1 when it is below, or when max_norm is 0 (clipping off). NaN,
/// which an optimizer refuses, if `norm` is not finite.
constexpr double clip_factor(double norm, double max_norm) {
  if (!(norm < std::numeric_limits<double>::infinity())) return std::numeric_limits<double>::quiet_NaN();
  return max_norm > 0 && norm > max_norm ? max_norm / norm : 1.0;
}

/// Clips by the norm of the gradients without the loss scale, and divides by the scale. NaN if the loss or the norm is
/// not finite: such a step makes no update.
constexpr double scale_of_update(double loss, double norm, double loss_scale, double max_norm) {
  constexpr double infinite = std::numeric_limits<double>::infinity();
  const bool finite = norm < infinite && loss < infinite && loss > -infinite;  // false for NaN
  return finite ? clip_factor(norm, max_norm) / loss_scale : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace trireme
