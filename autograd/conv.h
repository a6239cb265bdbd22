// Convolution, as cross-correlation, like PyTorch's: the kernel is not flipped. The operations know no mesh: a rank
// convolves its own samples and channels.
//
//   const Tensor y = conv2d(x, weight, bias, {.stride = 2, .padding = 1});  // [N, C, H, W] -> [N, O, ..]
//
// Each is 2 N O OH OW (C / groups) R S FLOPs forward, and twice that backward. On the CPU the products are an implicit
// GEMM of Trireme's own (core/cpu/conv.h), whatever select_gemm() says; on other devices a sum of products over the
// kernel positions (autograd/conv_by_positions.h).
// Read next: core/conv_geometry.h, nn/conv.h (the layers).
#pragma once

#include "autograd/size2d.h"
#include "core/conv_geometry.h"
#include "core/tensor.h"

namespace trireme {

/// Pairs are (height, width); one number stands for both.
struct Conv2dOptions {
  Size2d stride = 1;
  Size2d padding = 0;       ///< zeros on both sides
  Size2d dilation = 1;      ///< distance of neighbouring kernel elements in x
  std::int64_t groups = 1;  ///< divides C and O; output group i sees input group i only
};

/// y[n, o, i, j] = bias[o] + sum over c, r, s of weight[o, c, r, s] x[n, c, i stride + r dilation - padding, ..];
/// x [N, C, H, W], weight [O, C / groups, R, S], bias [O] or undefined -> [N, O, OH, OW], with
/// OH = (H + 2 padding - dilation (R - 1) - 1) / stride + 1, rounded down. Throws ExitCode::internal if the shapes do
/// not fit, or the kernel is larger than the padded input.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dOptions& options = {});

/// The same in one dim.
struct Conv1dOptions {
  std::int64_t stride = 1, padding = 0, dilation = 1, groups = 1;
};

/// The same along one dim: x [N, C, L], weight [O, C / groups, R], bias [O] or undefined -> [N, O, OL].
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv1dOptions& options = {});

}  // namespace trireme
