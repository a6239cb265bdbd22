// Module: the base of layers that map one tensor to one tensor. A layer is called like a function; it holds parameters
// and other modules. A layer with several inputs or outputs derives from ModuleBase.
// Read next: nn/linear.h, the layer most others are made of.
#pragma once

#include <functional>

#include "autograd/ops.h"
#include "nn/module_base.h"

namespace trireme::nn {

/// The base of layers that map one tensor to one tensor.
/// @snippet modules_test.cpp module
/// @snippet modules_test.cpp module_use
class Module : public ModuleBase {
 public:
  using ModuleBase::ModuleBase;

  /// What the layer computes. Override it, but call the layer: (*this)(x).
  virtual Tensor forward(const Tensor& x) = 0;
  /// forward(x). If it throws ExitCode::internal, as for a wrong shape, the message gets the layer's name.
  Tensor operator()(const Tensor& x);
  /// residual + (*this)(x). If the layer ends with a product that can add the residual, this saves a pass over memory.
  Tensor forward_add(const Tensor& residual, const Tensor& x);

  /// Called after each forward of the module, and after each that a recomputation repeats, with its input and output
  /// (of forward_add(): the sum). It may read the module's weights. It must not write to x or y.
  using ForwardHook = std::function<void(const Module& module, const Tensor& x, const Tensor& y)>;
  /// From now on calls `hook` too.
  void on_forward(ForwardHook hook) {
    require(hook != nullptr, "module", "an empty hook for '{}'; expected a function that can be called", name());
    hooks_.push_back(std::move(hook));
  }
  /// Removes all hooks.
  void clear_forward_hooks() { hooks_.clear(); }

 protected:
  /// Override it where a product can add the residual; forward_add() calls it.
  virtual Tensor do_forward_add(const Tensor& residual, const Tensor& x) { return residual + forward(x); }

 private:
  Tensor with_hooks(const Tensor& x, const Tensor& y) const;

  std::vector<ForwardHook> hooks_;
};

/// Gain and shift over the last dim. Every tp rank holds both; under sequence parallelism each rank sees only its own
/// positions, so the gradients are partial sums: Build::per_position_placement(). `zero_centred`: the gain is 1 +
/// weight, and the weight starts at 0 (Gemma; layernorm_1p in Megatron). In 16 bits the sum is rounded before it is
/// used.
class LayerNorm : public Module {
 public:
  LayerNorm(const Build& b, std::int64_t width, bool bias = true, double eps = 1e-5, bool zero_centred = false);
  Tensor forward(const Tensor& x) override;  // [.., D] -> [.., D]

 private:
  double eps_;
  bool zero_centred_;
  ParameterPtr weight_, bias_;  // [D]
};

/// Gain over the last dim, without centring; placed like LayerNorm's.
class RmsNorm : public Module {
 public:
  RmsNorm(const Build& b, std::int64_t width, double eps = 1e-5, bool zero_centred = false);
  Tensor forward(const Tensor& x) override;  // [.., D] -> [.., D]

 private:
  double eps_;
  bool zero_centred_;
  ParameterPtr weight_;  // [D]
};

/// Dropout. The mask depends on (seed, name, sample, element of the sample) only. [B, T, D] is the residual stream,
/// whole on every rank or cut by positions. Of a tensor with other dims, such as [B, D], each rank must hold whole
/// samples: cp, and tp with sequence parallelism, are refused.
///
///   build.run_state()->first_sample = batch.sample_ids.front();  // before each forward in training
class Dropout : public Module {
 public:
  Dropout(const Build& b, double p);  ///< 0 <= p < 1
  Tensor forward(const Tensor& x) override;
  bool drops() const { return training() && p_ != 0; }  ///< otherwise forward(x) is x

 private:
  double p_;
};

}  // namespace trireme::nn
