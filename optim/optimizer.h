// Optimizers: one fused pass per parameter over f32 master weights.
//
// A parameter stored in bf16 has an f32 master copy here, which is what is updated and then rounded into the parameter;
// an f32 parameter is its own master. Gradients are the parameter's f32 main gradients, already summed over ranks. Read
// next: optim/gradient_norm.h (clipping), core/cpu/optimizer.cpp (the passes).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/parameter.h"

namespace trireme::optim {

/// A tensor of an optimizer's state and the parameter it belongs to: what a checkpoint stores.
struct StateTensor {
  std::string name;                ///< "m", "v", "momentum" or "master"
  const nn::Parameter* parameter;  ///< gives the global name, shape and rectangle
  Tensor value;                    ///< f32, of the parameter's local shape
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// One update. `gradient_scale` multiplies every gradient first: clipping costs no pass of its own.
  virtual void step(double lr, double gradient_scale) = 0;

  virtual std::vector<StateTensor> state() = 0;
  std::int64_t steps() const { return steps_; }           ///< updates made so far: bias correction depends on it
  void set_steps(std::int64_t steps) { steps_ = steps; }  ///< when resuming
  /// Copies parameters into their masters again: after parameters were loaded from elsewhere.
  void refresh_masters();

 protected:
  explicit Optimizer(const nn::ParameterList& parameters);
  struct Slot {
    nn::ParameterPtr parameter;
    Tensor master;                // f32; the parameter itself when it is f32
    std::vector<Tensor> moments;  // f32
    Tensor low() const { return parameter->value.dtype() == DType::f32 ? Tensor() : parameter->value; }
  };
  std::vector<StateTensor> state_named(const std::vector<std::string>& moment_names);

  std::vector<Slot> slots_;
  std::int64_t steps_ = 0;
};

struct AdamWConfig {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double weight_decay = 0.1;  ///< on parameters with `decay` only: matrices
};
/// Loshchilov and Hutter 2019, algorithm 2: decoupled weight decay, bias-corrected moments.
std::unique_ptr<Optimizer> make_adamw(const nn::ParameterList& parameters, const AdamWConfig& config);

struct SgdConfig {
  double momentum = 0.0;
  double weight_decay = 0.0;  ///< on parameters with `decay` only
};
std::unique_ptr<Optimizer> make_sgd(const nn::ParameterList& parameters, const SgdConfig& config);

}  // namespace trireme::optim
