// Linear: y = x W^T + b, and its two tensor-parallel halves (Shoeybi et al. 2019, section 3).
//
//   Split::none   W whole on every tp rank, applied to the residual stream as it is.
//   Split::out    W split by outputs ("column parallel"): every rank uses all of x, and x's gradient is summed: I -> R.
//                 y is sharded on its last dim.
//   Split::in     W split by inputs ("row parallel"): x arrives sharded on its last dim, y is a partial sum: P -> I.
//                 The bias is added once, after the sum.
//
// A Split::out followed by a Split::in needs one all-reduce forward and one backward, and nothing in between. Under
// sequence parallelism (Korthikanti et al. 2022) the residual stream is cut by positions, S(1): the two moves become
// S(1) -> R and P -> S(1), an all-gather and a reduce-scatter, which together carry the bytes of that one all-reduce.
// Read next: parallel/mesh/redistribute.h (the moves), nn/mlp.h.
#pragma once

#include "nn/module.h"

namespace trireme::nn {

enum class Split : std::uint8_t { none, out, in };

struct LinearOptions {
  bool bias = true;
  double init_std = 0.02;  ///< of the initial weights; biases start at 0
  /// Split::out: the outputs are `parts` equal parts that must not be cut, such as key-value heads. With fewer parts
  /// than tp ranks, tp/parts neighbouring ranks use the same part. Then every rank holds all of W and computes its own
  /// part, and W is R: one sum over tp joins the gradients of all parts and of all ranks that share one. 0: any cut is
  /// allowed.
  std::int64_t parts = 0;
};

class Linear : public Module {
 public:
  /// weight [out.., in]: `out` may have several dims, of which Split::out splits the last: [3, D] keeps q, k and v
  /// whole per head.
  Linear(const Build& b, std::int64_t in, const Shape& out, Split split, const LinearOptions& options);
  Tensor forward(const Tensor& x) override;  // [.., in(/tp)] -> [.., out(/tp)], out flattened
  /// Split::out, for an input that is R on tp already, so that several layers can share one redistribution.
  Tensor of_replicated(const Tensor& x);  // [.., in] -> [.., out/tp]

  /// For layers that multiply by the weights themselves (nn/mlp.cpp): the part of the weights that this rank uses.
  Tensor weight() const { return used_part(weight_); }
  Tensor bias() const { return bias_ ? used_part(bias_) : Tensor(); }
  /// What Split::out does to its input first.
  Tensor gathered(const Tensor& x) const;  // residual [.., in] -> [.., in], R on tp
  /// What Split::in does to its product at the end: the sum over tp, then the bias.
  Tensor completed(const Tensor& y) const;  // [.., out], a partial sum over tp -> residual [.., out]
  bool complete() const { return split_ != Split::in || mesh().size(Axis::tp) == 1; }  ///< no sum over tp is needed

 protected:
  Tensor do_forward_add(const Tensor& residual, const Tensor& x) override;

 private:
  Tensor used_part(const ParameterPtr& parameter) const;

  Split split_;
  int split_dim_ = 0;       // of weight and bias, by Split::out
  std::int64_t parts_ = 0;  // not 0: tp ranks share parts
  ParameterPtr weight_, bias_;
};

}  // namespace trireme::nn
