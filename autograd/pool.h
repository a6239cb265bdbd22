// Pooling over windows of the last two dims of x [N, C, H, W]. Each rank pools its own samples and channels.
//
//   const Tensor y = max_pool2d(x, {.kernel = 3, .stride = 2, .padding = 1});
//
// Read next: autograd/conv.h (whose sizes these are), nn/pool.h (the layers).
#pragma once

#include "autograd/size2d.h"
#include "core/conv_geometry.h"
#include "core/tensor.h"

namespace trireme {

/// Pairs are (height, width); one number stands for both.
struct MaxPool2dOptions {
  Size2d kernel = 2;
  Size2d stride = 0;   ///< 0: the kernel's extent
  Size2d padding = 0;  ///< with -infinity; at most half of the kernel
  Size2d dilation = 1;
};
/// The largest element of each window: [N, C, OH, OW], OH as for conv2d. Among equals, the first gets the whole
/// gradient, as in PyTorch.
Tensor max_pool2d(const Tensor& x, const MaxPool2dOptions& options = {});
/// The same with the kernels that every device has: it copies each window. max_pool2d uses it except on the CPU.
Tensor max_pool2d_by_windows(const Tensor& x, const MaxPool2dOptions& options = {});

/// Windows of an average.
struct AvgPool2dOptions {
  Size2d kernel = 2;
  Size2d stride = 0;              ///< 0: the kernel's extent
  Size2d padding = 0;             ///< with zeros; at most half of the kernel
  bool count_include_pad = true;  ///< padding counts as elements; otherwise a window is divided by those inside x
};
/// The mean of each window: [N, C, OH, OW], OH = (H + 2 padding - kernel) / stride + 1, rounded down.
Tensor avg_pool2d(const Tensor& x, const AvgPool2dOptions& options = {});

/// Means of windows that cover x evenly: [N, C, size[0], size[1]]. Output i of size n covers the elements from i H / n,
/// rounded down, to (i + 1) H / n, rounded up. With {1, 1}, the mean of each plane.
Tensor adaptive_avg_pool2d(const Tensor& x, Size2d size = 1);

}  // namespace trireme
