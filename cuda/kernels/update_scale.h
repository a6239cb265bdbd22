// The factor by which an optimizer's kernels multiply gradients, computed where the norm is, so that the host need not
// wait for the norm before it queues the update. Contract: update_scale of core/kernels.h. A launch of one thread,
// which reads 16 bytes and writes 4.
#pragma once

#include "cuda/device/device.h"

namespace trireme::cuda {

/// scale[0] from `squares` [1], the sum of squares of all gradients; NaN if that or `loss` [1] is not finite. `loss`
/// may be null.
void update_scale(const double* loss, const double* squares, double loss_scale, double max_norm, float* scale,
                  Stream stream = nullptr);

}  // namespace trireme::cuda
