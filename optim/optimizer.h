// Optimizers: one fused pass over the f32 master weights of many shards. A shard is the part of a parameter that this
// rank updates: all of it, or with ZeRO a piece (parallel/parameters/shard.h).
//
// A parameter stored in bf16 has an f32 master copy here, which is updated and then rounded into the parameter; an f32
// parameter is its own master. Gradients are the parameter's f32 main gradients, already summed over ranks. Offloaded
// state is on the host: gradients are copied there, and new weights back to their device.
// Read next: parallel/data_parallel.h, parallel/gradient_norm.h (clipping), core/cpu/optimizer.cpp (the passes).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parallel/data_parallel.h"
#include "parallel/parameters/state_tensor.h"

namespace trireme::optim {

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// One update. `gradient_scale` multiplies every gradient first: clipping costs no pass of its own. Throws
  /// ExitCode::internal for shards of ZeRO before attach().
  void step(double lr, double gradient_scale) { step(lr, GradientScale{gradient_scale, {}}); }
  /// The same with a factor that the host need not know: f32 [1], on the device of the state. If it is NaN, weights and
  /// state stay as they are, and the caller takes back the count: set_steps(steps() - 1).
  void step(double lr, const Tensor& gradient_scale) { step(lr, GradientScale{1, gradient_scale}); }
  /// Call once if the shards are gradients.shards(). From then on `gradients` chooses the order in which step() updates
  /// the shards, and has the state hashed between updates. state() and weights() first wait until gathered weights have
  /// arrived. `gradients` must outlive this object.
  void attach(DataParallel& gradients);

  /// The state, and the weights as they are kept here: pieces where a parameter is not whole on this rank. Tensors may
  /// be written to (loading). Once attached, collective: waits for weights that are still being gathered.
  std::vector<StateTensor> state();
  std::vector<StateTensor> weights();
  std::vector<StateTensor> weights_and_state();  ///< in this order: what a checkpoint stores

  std::int64_t steps() const { return steps_; }           ///< updates made so far: bias correction depends on it
  void set_steps(std::int64_t steps) { steps_ = steps; }  ///< when resuming
  /// Names of the tensors kept for each weight: "m" and "v" for AdamW, "momentum" for SGD with momentum.
  const std::vector<std::string>& moment_names() const { return moment_names_; }

 protected:
  Optimizer(const ShardList& shards, std::vector<std::string> moment_names, MemoryCategory memory);
  struct Slot {
    ShardPtr shard;
    Tensor master;                // f32; undefined for f32 weights, which are their own
    std::vector<Tensor> moments;  // f32
  };
  /// What the formulas work on: dense tensors of one shape.
  struct Operands {
    Tensor gradient;              // f32
    Tensor master;                // f32
    Tensor low_precision;         // the parameter in bf16 or f16; undefined if it is f32
    std::vector<Tensor> moments;  // f32
    bool decay;
  };
  /// What multiplies gradients: `on_device` if it is defined, else `value`.
  struct GradientScale {
    double value;
    Tensor on_device;
  };
  /// The device on which a shard's state is kept and updated.
  Device device_of(const Shard& shard) const;
  Operands operands_of(Slot& slot) const;
  /// All on one device; at least one.
  virtual void apply(std::span<const Operands> operands, double lr, const GradientScale& scale) = 0;
  /// Updates shards by their place in the list given to the constructor, in one pass, on a GPU in one or few launches.
  void update(std::span<const std::size_t> places, double lr, const GradientScale& scale);
  void step(double lr, const GradientScale& scale);

  std::vector<Slot> slots_;
  // Operands that one pass updates: shards whose state is on their own device; reused by each step.
  std::vector<Operands> batch_;
  std::vector<std::string> moment_names_;
  bool offloaded_;
  DataParallel* gradients_ = nullptr;
  std::int64_t steps_ = 0;
};

struct AdamWConfig {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double weight_decay = 0.1;                          ///< on parameters with `decay` only: matrices
  MemoryCategory memory = MemoryCategory::optimizer;  ///< where moments and masters live; or `offloaded`
};
/// Loshchilov and Hutter 2019, algorithm 2: decoupled weight decay, bias-corrected moments.
std::unique_ptr<Optimizer> make_adamw(const ShardList& shards, const AdamWConfig& config);
std::unique_ptr<Optimizer> make_adamw(const ParameterList& parameters, const AdamWConfig& config);

struct SgdConfig {
  double momentum = 0.0;
  double weight_decay = 0.0;                          ///< on parameters with `decay` only
  MemoryCategory memory = MemoryCategory::optimizer;  ///< where momentum and masters live; or `offloaded`
};
std::unique_ptr<Optimizer> make_sgd(const ShardList& shards, const SgdConfig& config);
std::unique_ptr<Optimizer> make_sgd(const ParameterList& parameters, const SgdConfig& config);

}  // namespace trireme::optim
