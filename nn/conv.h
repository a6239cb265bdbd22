// Conv1d and Conv2d: convolution layers for samples with channels first, [N, C, L] and [N, C, H, W].
//
//   nn::Conv2d conv(b / "conv", 3, 64, 7, {.stride = 2, .padding = 3});
//   const Tensor y = conv(x);  // [N, 3, 224, 224] -> [N, 64, 112, 112]
//
// What is sharded: nothing but the samples. All tp ranks hold the whole weight and compute the same, so the weight is I
// on tp; over dp its gradients are summed, as for every parameter. A convolution mixes neighbouring positions, so the
// layers refuse a mesh that splits the positions of a sample: cp, and tp with sequence parallelism.
//
// Initial weights are normal, with the standard deviation sqrt(2 / (inputs of an output)) of He et al. 2015, section
// 2.2, unless `init_std` is given; biases begin at 0.
// Read next: autograd/conv.h, nn/batch_norm.h.
#pragma once

#include "autograd/conv.h"
#include "nn/module.h"

namespace trireme::nn {

/// Throws ExitCode::usage if this mesh splits the positions of a sample over ranks. `layer`: for the message.
void require_whole_samples(const Build& b, std::string_view layer);

/// Choices of a Conv2d.
struct Conv2dLayerOptions {
  Size2d stride = 1, padding = 0, dilation = 1;  ///< (height, width); one number for both
  std::int64_t groups = 1;
  bool bias = true;
  double init_std = 0;  ///< 0: He et al.
};

/// Convolution of x [N, C, H, W] (autograd/conv.h), with its weights.
/// @snippet modules_test.cpp conv
class Conv2d : public Module {
 public:
  /// weight [out, in / groups, kernel[0], kernel[1]], bias [out].
  Conv2d(const Build& b, std::int64_t in, std::int64_t out, Size2d kernel, const Conv2dLayerOptions& options = {});
  Tensor forward(const Tensor& x) override;  // [N, C, H, W] -> [N, O, OH, OW]

 private:
  Conv2dOptions options_;
  ParameterPtr weight_, bias_;
};

/// Choices of a Conv1d.
struct Conv1dLayerOptions {
  std::int64_t stride = 1, padding = 0, dilation = 1, groups = 1;
  bool bias = true;
  double init_std = 0;  ///< 0: He et al.
};

/// Convolution of x [N, C, L], with its weights.
class Conv1d : public Module {
 public:
  /// weight [out, in / groups, kernel], bias [out].
  Conv1d(const Build& b, std::int64_t in, std::int64_t out, std::int64_t kernel,
         const Conv1dLayerOptions& options = {});
  Tensor forward(const Tensor& x) override;  // [N, C, L] -> [N, O, OL]

 private:
  Conv1dOptions options_;
  ParameterPtr weight_, bias_;
};

}  // namespace trireme::nn
