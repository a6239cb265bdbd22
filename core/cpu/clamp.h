// clamp, which autograd/compare.cpp composes on other devices: one pass instead of two. Read next: elementwise.cpp.
#pragma once

#include "core/tensor.h"

namespace trireme::cpu {

/// y = min(max(x, low), high), with low and high rounded to T; NaN stays NaN. x, y dense T of one shape.
void clamp(double low, double high, const Tensor& x, const Tensor& y);

}  // namespace trireme::cpu
