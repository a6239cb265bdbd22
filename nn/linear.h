// Linear: y = x W^T + b, and its two tensor-parallel halves (Shoeybi et al. 2019, section 3).
//
//   Split::none   W whole on every tp rank
//   Split::out    W split by outputs ("column parallel"): x is used by every rank's part, and its gradient summed: I -> R.
//                 y is sharded on its last dim.
//   Split::in     W split by inputs ("row parallel"): x arrives sharded on its last dim, y is a part of the sum: P -> I.
//                 The bias is added once, after the sum.
//
// A Split::out followed by a Split::in needs one all-reduce forward and one backward, and nothing in between.
#pragma once

#include "nn/module.h"

namespace trireme::nn {

enum class Split : std::uint8_t { none, out, in };

struct LinearOptions {
  bool bias = true;
  double deviation = 0.02;  ///< of the initial weights; biases start at 0
};

class Linear : public Module {
 public:
  /// weight [out.., in]: `out` may have several dims, of which Split::out splits the last: [3, D] keeps q, k and v
  /// whole per head.
  Linear(const Build& b, std::int64_t in, const Shape& out, Split split, const LinearOptions& options);
  Tensor forward(const Tensor& x) override;  // [.., in(/tp)] -> [.., out(/tp)], out flattened

 private:
  Split split_;
  ParameterPtr weight_, bias_;
};

}  // namespace trireme::nn
