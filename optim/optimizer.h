// Optimizers: one fused pass over the f32 master weights of many shards. A shard is the part of a parameter that this
// rank updates: all of it, or with ZeRO a piece (optim/shard.h).
//
// A parameter stored in bf16 has an f32 master copy here, which is updated and then rounded into the parameter; an f32
// parameter is its own master. Gradients are the parameter's f32 main gradients, already summed over ranks. Offloaded
// state is on the host: gradients are copied there, and new weights back to their device.
// Read next: optim/gradient_norm.h (clipping), core/cpu/optimizer.cpp (the passes).
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "optim/shard.h"

namespace trireme::optim {

/// A tensor of an optimizer's state, or a weight, and the parameter it belongs to: what a checkpoint stores.
struct StateTensor {
  std::string name;                    ///< "m", "v", "momentum" or "master"; "" for a weight
  const nn::Parameter* parameter;      ///< gives the global name and shape
  Tensor value;                        ///< f32, of the shard's shape; a weight: the parameter's dtype
  std::shared_ptr<const Shard> shard;  ///< which piece this is; null: the whole of the parameter's local tensor

  Rectangle rectangle() const { return shard ? shard->rectangle() : parameter->rectangle; }
  std::string full_name() const;  ///< as in a checkpoint: "optimizer.m.NAME", or for a weight NAME
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// One update. `gradient_scale` multiplies every gradient first: clipping costs no pass of its own.
  void step(double lr, double gradient_scale);
  /// The same in parts, for callers that do something in between: begin_step() once, then update() with each shard
  /// once, by its index in the list given to the constructor. All shards of one call are updated in one pass, on a GPU
  /// in one or few launches.
  void begin_step() { ++steps_; }
  void update(std::span<const std::size_t> shards, double lr, double gradient_scale);

  /// The state, and the weights as they are kept here: pieces where a parameter is not whole on this rank. Tensors may
  /// be written to (loading).
  std::vector<StateTensor> state();
  std::vector<StateTensor> weights();
  /// `prepare` runs at the start of state() and weights(): it completes what is still on its way to them.
  void set_prepare(std::function<void()> prepare) { prepare_ = std::move(prepare); }

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
    Tensor master, low;           // f32; the copy in the parameter's dtype, or undefined
    std::vector<Tensor> moments;  // f32
    bool decay;
  };
  /// The device on which a shard's state is kept and updated.
  Device device_of(const Shard& shard) const;
  Operands operands_of(Slot& slot) const;
  /// All on one device; at least one.
  virtual void apply(std::span<const Operands> operands, double lr, double gradient_scale) = 0;

  std::vector<Slot> slots_;
  std::vector<Operands> here_;  // of a step; keeps its memory, so that a step allocates none
  std::vector<std::string> moment_names_;
  bool offloaded_;
  std::function<void()> prepare_;
  std::int64_t steps_ = 0;
};

struct AdamWConfig {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double weight_decay = 0.1;                          ///< on parameters with `decay` only: matrices
  MemoryCategory memory = MemoryCategory::optimizer;  ///< where moments and masters live; or `offloaded`
};
/// Loshchilov and Hutter 2019, algorithm 2: decoupled weight decay, bias-corrected moments.
std::unique_ptr<Optimizer> make_adamw(const ShardList& shards, const AdamWConfig& config);
std::unique_ptr<Optimizer> make_adamw(const nn::ParameterList& parameters, const AdamWConfig& config);

struct SgdConfig {
  double momentum = 0.0;
  double weight_decay = 0.0;                          ///< on parameters with `decay` only
  MemoryCategory memory = MemoryCategory::optimizer;  ///< where momentum and masters live; or `offloaded`
};
std::unique_ptr<Optimizer> make_sgd(const ShardList& shards, const SgdConfig& config);
std::unique_ptr<Optimizer> make_sgd(const nn::ParameterList& parameters, const SgdConfig& config);

}  // namespace trireme::optim
