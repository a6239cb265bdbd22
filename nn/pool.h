// MaxPool2d, AvgPool2d and AdaptiveAvgPool2d: the operations of autograd/pool.h as layers, without parameters.
//
//   nn::MaxPool2d pool(b / "pool", {.kernel = 3, .stride = 2, .padding = 1});
//
// They need whole samples on each rank, as nn::Conv2d does. Read next: autograd/pool.h.
#pragma once

#include "autograd/pool.h"
#include "nn/conv.h"

namespace trireme::nn {

/// The maximum over windows (autograd/pool.h).
class MaxPool2d : public Module {
 public:
  explicit MaxPool2d(const Build& b, const MaxPool2dOptions& options = {}) : Module(b), options_(options) {
    require_whole_samples(b, "max_pool2d");
  }
  Tensor forward(const Tensor& x) override { return max_pool2d(x, options_); }  // [N, C, H, W] -> [N, C, OH, OW]

 private:
  MaxPool2dOptions options_;
};

/// The mean over windows (autograd/pool.h).
class AvgPool2d : public Module {
 public:
  explicit AvgPool2d(const Build& b, const AvgPool2dOptions& options = {}) : Module(b), options_(options) {
    require_whole_samples(b, "avg_pool2d");
  }
  Tensor forward(const Tensor& x) override { return avg_pool2d(x, options_); }  // [N, C, H, W] -> [N, C, OH, OW]

 private:
  AvgPool2dOptions options_;
};

/// With {1, 1}, global average pooling.
class AdaptiveAvgPool2d : public Module {
 public:
  explicit AdaptiveAvgPool2d(const Build& b, Size2d size = 1) : Module(b), size_(size) {
    require_whole_samples(b, "adaptive_avg_pool2d");
  }
  Tensor forward(const Tensor& x) override { return adaptive_avg_pool2d(x, size_); }  // -> [N, C, size..]

 private:
  Size2d size_;
};

}  // namespace trireme::nn
