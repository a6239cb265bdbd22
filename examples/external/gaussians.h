// An operation with a gradient, written outside Trireme.
// Read next: gaussians.cpp.
#pragma once

#include <trireme/core/tensor.h>

/// y[n, h] = exp(-rate[h] |x[n] - center[h]|^2), for x [N, D], center [H, D] and rate [H] of one dtype, f32 or f64, on
/// the host -> [N, H]. Differentiable in all three.
trireme::Tensor gaussians(const trireme::Tensor& x, const trireme::Tensor& center, const trireme::Tensor& rate);
