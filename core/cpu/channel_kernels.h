// Kernels that only the CPU has: of images, of norms over channels, of steps of recurrent layers, clamp, log_softmax
// and concat. They are reached through the level in use (level.h), as the kernel table is:
// channel_kernels().conv2d(x, weight, bias, geometry, y). On other devices, operations compose them of the kernel
// table's. Read next: conv.h, max_pool.h, row_norm.h, recurrent_steps.h: their contracts.
#pragma once

#include <vector>

#include "core/cpu/conv.h"
#include "core/cpu/level.h"
#include "core/cpu/max_pool.h"
#include "core/cpu/recurrent_steps.h"
#include "core/cpu/row_norm.h"

namespace trireme::cpu {

/// y = min(max(x, low), high), with low and high rounded to T; NaN stays NaN. x, y dense T of one shape. One pass
/// instead of two.
void clamp(double low, double high, const Tensor& x, const Tensor& y);
/// y = [parts[0], parts[1], ..] along `dim`, in one pass over y. All are dense and of one dtype, and y has the shape of
/// the result. The dims before `dim` are divided among threads.
void concat_dense(const std::vector<Tensor>& parts, int dim, const Tensor& y);
/// y = (x - m) - log(sum(exp(x - m))) over the last dim, where m is the maximum of the row. x and y are dense, of one
/// shape and type. Makes two passes over a row in the cache instead of six.
void log_softmax(const Tensor& x, const Tensor& y);
/// dx = dy - exp(y) sum(dy), where the sum is over the last dim. y, dy and dx are dense, of one shape and type.
void log_softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx);

#define TRIREME_EVERY_CHANNEL_KERNEL(f)                                                                              \
  f(conv2d) f(conv2d_input_gradient) f(conv2d_weight_gradient) f(max_pool) f(max_pool_backward) f(row_sums)          \
      f(row_squares) f(row_products) f(scale_rows) f(combine_rows) f(group_norm) f(group_norm_backward) f(lstm_step) \
          f(lstm_step_backward) f(gru_step) f(gru_step_backward) f(clamp) f(log_softmax) f(log_softmax_backward)     \
              f(concat_dense)

struct ChannelKernels {
#define TRIREME_DECLARE_CHANNEL_KERNEL(name) decltype(&cpu::name) name;  // NOLINT(bugprone-macro-parentheses)
  TRIREME_EVERY_CHANNEL_KERNEL(TRIREME_DECLARE_CHANNEL_KERNEL)
#undef TRIREME_DECLARE_CHANNEL_KERNEL
};

inline const ChannelKernels& channel_kernels() { return level().channel_kernels(); }

}  // namespace trireme::cpu
