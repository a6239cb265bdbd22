// GroupNorm: the operation of autograd/group_norm.h with a gain and a shift per channel. Nothing is sharded: all tp
// ranks hold both and compute the same. It needs whole samples on each rank, as nn::Conv2d does.
//
//   nn::GroupNorm norm(b / "norm", 8, 64);
//   const Tensor y = norm(x);  // [N, 64, H, W] -> as x
// Read next: nn/batch_norm.h.
#pragma once

#include "nn/module.h"

namespace trireme::nn {

class GroupNorm : public Module {
 public:
  /// weight [channels] ones, bias [channels] zeros; `groups` divides channels.
  GroupNorm(const Build& b, std::int64_t groups, std::int64_t channels, double eps = 1e-5);
  Tensor forward(const Tensor& x) override;  // [N, C, ..] -> [N, C, ..]

 private:
  std::int64_t groups_;
  double eps_;
  ParameterPtr weight_, bias_;
};

}  // namespace trireme::nn
