// Group norm (Wu and He 2018): each sample's channels in groups of neighbours, normalised over the channels and
// positions of a group. Statistics cover one sample, so they are the same on any mesh that keeps samples whole.
// Read next: nn/group_norm.h.
#pragma once

#include "core/tensor.h"

namespace trireme {

/// y = (x - mean) / sqrt(variance + eps) * gamma + beta; x [N, C, ..], `groups` a divisor of C, mean and (biased)
/// variance over each sample and group, gamma and beta [C] -> as x. With one group, a layer norm over all dims but the
/// first; with C groups, instance norm.
Tensor group_norm(const Tensor& x, std::int64_t groups, const Tensor& gamma, const Tensor& beta, double eps = 1e-5);

}  // namespace trireme
