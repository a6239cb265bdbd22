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
//
//   nn::Linear out(b / "out", 64, 10);                                // whole on every rank
//   nn::Linear up(b / "up", 64, {256}, nn::Split::out, {});           // [B, T, 64] -> [B, T, 256 / tp]
//   nn::Linear down(b / "down", 256, {64}, nn::Split::in, {});        // [B, T, 256 / tp] -> [B, T, 64]
//
// A Build with adapters gives the layer a low-rank adapter beside W: nn/lora.h.
// Read next: parallel/mesh/redistribute.h (the moves), nn/mlp.h.
#pragma once

#include <cstdint>
#include <optional>

#include "nn/module.h"

namespace trireme::nn {

class Lora;

/// How tensor parallelism cuts a Linear: which dim of the weight is split over tp. See the top of this file.
enum class Split : std::uint8_t { none, out, in };

/// Choices of a Linear.
struct LinearOptions {
  bool bias = true;
  double init_std = 0.02;             ///< of the initial weights; biases start at 0
  std::optional<Init> weight_init{};  ///< takes the place of Init::normal(init_std)
  /// Split::out: the outputs are `parts` equal parts that must not be cut, such as key-value heads. With fewer parts
  /// than tp ranks, tp/parts neighbouring ranks use the same part. Then every rank holds all of W and computes its own
  /// part, and W is R: one sum over tp joins the gradients of all parts and of all ranks that share one. 0: any cut is
  /// allowed.
  std::int64_t parts = 0;
  /// False for a layer at the input or the output of a model: Muon updates W only between hidden features.
  bool hidden = true;
  /// The first of two output dims counts layers in one, such as gate and up: an adapter (nn/lora.h) then has a matrix A
  /// for each of them.
  bool separate_adapters = false;
};

/// Of a Linear that is not split. The initial weights are PyTorch's: uniform in +-1/sqrt(in). Biases start at 0.
struct WholeLinearOptions {
  bool bias = true;
  Init weight_init = Init::kaiming_uniform(0.5773502691896258);  ///< gain 1/sqrt(3)
  bool hidden = true;                                            ///< as in LinearOptions
};

/// y = x W^T + b, whole or split over tp: see the top of this file.
/// @snippet modules_test.cpp linear
class Linear : public Module {
 public:
  /// weight [out, in], whole on every tp rank: Split::none.
  Linear(const Build& b, std::int64_t in, std::int64_t out, const WholeLinearOptions& options = {});
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
  /// Whether it has an adapter, which weight() does not contain: then call the layer.
  bool adapted() const { return lora_ != nullptr; }
  bool complete() const { return split_ != Split::in || mesh().size(Axis::tp) == 1; }  ///< no sum over tp is needed

 protected:
  Tensor do_forward_add(const Tensor& residual, const Tensor& x) override;

 private:
  Tensor with_adapter(const Tensor& y, const Tensor& x) const;
  Tensor used_part(const ParameterPtr& parameter) const;

  Split split_;
  int split_dim_ = 0;       // of weight and bias, by Split::out
  std::int64_t parts_ = 0;  // not 0: tp ranks share parts
  ParameterPtr weight_, bias_;
  std::shared_ptr<Lora> lora_;  // or null
};

}  // namespace trireme::nn
