// log_softmax, which autograd/log_softmax.cpp composes on other devices: two passes over a row in the cache instead of
// six. Read next: softmax.cpp.
#pragma once

#include "core/tensor.h"

namespace trireme::cpu {

/// y = (x - m) - log(sum(exp(x - m))) over the last dim, with m the maximum of a row. x, y dense T of one shape.
void log_softmax(const Tensor& x, const Tensor& y);
/// dx = dy - exp(y) sum(dy), the sum over the last dim. y, dy, dx dense T of one shape.
void log_softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx);

}  // namespace trireme::cpu
