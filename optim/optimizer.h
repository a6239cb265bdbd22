// Optimizers: one fused pass over the f32 master weights of many shards. A shard is the part of a parameter that this
// rank updates: all of it, or with ZeRO a piece (parallel/parameters/shard.h).
//
// A parameter stored in bf16 has an f32 master copy here, which is updated and then rounded into the parameter; an f32
// parameter is its own master. Only the optimizer may write to a weight that has a copy: step() refuses other changes,
// which the copy would overwrite. Gradients are the parameter's f32 main gradients, already summed over ranks.
// Offloaded state is on the host: gradients are copied there, and new weights back to their device.
// Muon is in optim/muon.h, Adafactor in optim/adafactor.h. Read next: parallel/data_parallel/data_parallel.h,
// parallel/data_parallel/gradient_norm.h (clipping), core/cpu/optimizer.cpp (the passes).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "optim/parameter_factors.h"
#include "parallel/data_parallel/data_parallel.h"
#include "parallel/parameters/later_parameters.h"
#include "parallel/parameters/shard.h"

namespace trireme::optim {

/// The base of all optimizers: make one with make_adamw(), make_sgd(), make_lion(), make_muon()
/// or make_adafactor().
/// @snippet training_test.cpp optimizers
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// Its name in --optimizer: "adamw". A checkpoint stores it, and a run resumes only with the same.
  const std::string& name() const { return name_; }

  /// One update. `gradient_scale` multiplies every gradient first: clipping costs no pass of its own. Throws, and
  /// changes nothing: ExitCode::internal for shards of ZeRO before attach(), for a parameter without a gradient, and
  /// for a negative or infinite learning rate; ExitCode::usage if gradients were not summed over ranks, as before
  /// GradSync::finish(), for a weight that was written to and whose copy here has other values (read_weights()), and
  /// for a layer that was made after this object and has a gradient; ExitCode::numerical for a `gradient_scale` that is
  /// not finite.
  void step(double lr, double gradient_scale = 1);
  /// The same with a factor that the host need not know: f32 [1], on the device of the state. If it is NaN, weights and
  /// state stay as they are, and the caller takes back the count: set_steps(steps() - 1).
  void step(double lr, const Tensor& gradient_scale) { step(lr, GradientScale{1, gradient_scale}); }
  /// Whether step() takes a factor that the host does not know.
  virtual bool takes_scale_on_device() const { return !averages(); }

  /// Multiplies the learning rate, and the weight decay, of each parameter. A parameter without decay stays without.
  /// Throws ExitCode::usage if a pattern matches none of the parameters, or for `decay` none with weight decay: it may
  /// be misspelt.
  void set_factors(const ParameterFactors& lr, const ParameterFactors& decay) { set_factors(lr, decay, nullptr); }
  /// The same with pp > 1, where a pattern may match parameters of another stage only. Collective over the mesh.
  void set_factors(const ParameterFactors& lr, const ParameterFactors& decay, const DeviceMesh& mesh) {
    set_factors(lr, decay, &mesh);
  }
  /// From now on moments are stored in bf16, which halves their memory, and computed in f32. They are rounded at
  /// random, so that small changes are kept on average; the nearest bf16 would lose those below 2^-9 of a moment. The
  /// random numbers are a function of `seed`, the step, the name of the moment and the place of the element in the
  /// whole tensor, so they are the same on every mesh. Shards are then updated one by one. Call it before the first
  /// step.
  virtual void store_moments_in_bf16(std::uint64_t seed);
  bool stores_moments_in_bf16() const { return rounding_seed_.has_value(); }
  /// From now on keeps an exponential moving average of the weights: after every update, average = decay average +
  /// (1 - decay) weight, in f32, beginning with the present weights. It is part of the state, as "ema". 0 <= decay < 1;
  /// call it before attach().
  void average_weights(double decay);
  bool averages() const { return average_decay_.has_value(); }
  /// Exchanges weights and averages, as for an evaluation: the model computes with the averages until the next call,
  /// before which step() throws ExitCode::usage, and what is saved has the averages as its weights. Called twice, it
  /// changes no bit. Collective. Throws ExitCode::internal without average_weights().
  void swap_average();
  /// Call once if the shards are gradients.shards(). From then on `gradients` chooses the order in which step() updates
  /// the shards, and has the state hashed between updates. state() and weights() first wait until gathered weights have
  /// arrived. `gradients` must live as long as this object is used: afterwards step(), state() and weights() throw
  /// ExitCode::usage.
  void attach(DataParallel& gradients);

  /// The state, and the weights as they are kept here: pieces where a parameter is not whole on this rank. Tensors may
  /// be written to (loading). Once attached, collective: waits for weights that are still being gathered.
  virtual std::vector<StateTensor> state();
  std::vector<StateTensor> weights();            ///< the weights as they are kept here: f32 masters of 16-bit weights
  std::vector<StateTensor> weights_and_state();  ///< in this order: what a checkpoint stores
  /// Call it after you have changed weights, other than through this object: makes the f32 copies of 16-bit weights
  /// anew. Averages and moments stay as they are. Collective once attached.
  void read_weights();
  /// Call it after you have changed weights and, through state(), their f32 copies together: step() then does not
  /// compare them.
  void note_versions();

  std::int64_t steps() const { return steps_; }           ///< updates made so far: bias correction depends on it
  void set_steps(std::int64_t steps) { steps_ = steps; }  ///< when resuming
  /// Names of the tensors kept for weights: "m" and "v" for AdamW, "momentum" for SGD with momentum, "m" for Lion;
  /// "row" and "column" of matrices and "v" of vectors for Adafactor, which have shapes of their own.
  const std::vector<std::string>& moment_names() const { return moment_names_; }

 protected:
  /// Which of the moment names a parameter has; by default all.
  using MomentsOf = std::function<std::vector<std::string>(const Parameter&)>;
  Optimizer(std::string name, const ShardList& shards, std::vector<std::string> moment_names, MemoryCategory memory,
            const MomentsOf& moments_of = {});
  /// A shard with its state.
  struct Slot {
    ShardPtr shard;
    Tensor master;                   // f32; undefined for f32 weights, which are their own
    std::vector<Tensor> moments;     // f32, or bf16
    std::vector<std::string> names;  // of the moments
    bool frozen = false;             // when this was made: there is no state
    Tensor average;                  // f32; undefined without average_weights()
    std::uint64_t version = 0;       // of the weights' storage, when the master was last like them
    double lr_factor = 1, decay_factor = 1;
  };
  /// What the formulas work on: dense tensors of one shape.
  struct Operands {
    Tensor gradient;              // f32
    Tensor master;                // f32
    Tensor low_precision;         // the parameter in bf16 or f16; undefined if it is f32
    std::vector<Tensor> moments;  // f32
    Tensor average;               // f32, or undefined
    double lr_factor, decay;      // `decay`: what multiplies weight_decay; 0: none
    const Parameter* parameter;
  };
  /// What multiplies gradients: `on_device` if it is defined, else `value`.
  struct GradientScale {
    double value;
    Tensor on_device;
  };
  /// The device on which a shard's state is kept and updated.
  Device device_of(const Shard& shard) const;
  /// The gradient of a shard; throws if it is undefined, or does not fit the weights.
  static const Tensor& gradient_of(const Shard& shard);
  /// Called in step() before shards are updated, with all gradients summed: for work on several shards at once.
  virtual void prepare(const GradientScale& /*scale*/) {}
  /// The tensors of a shard for apply(); `with_gradient`: also the gradient.
  Operands operands_of(Slot& slot, bool with_gradient) const;
  /// A moment in f32 (a copy if it is stored in bf16), and the way back.
  static Tensor moment(const Slot& slot, std::size_t i) { return cast(slot.moments[i], DType::f32); }
  /// Writes a moment that moment() has returned, rounded if it is stored in bf16.
  void set_moment(Slot& slot, std::size_t i, const Tensor& value) const;
  /// All on one device; at least one.
  virtual void apply(std::span<const Operands> operands, double lr, const GradientScale& scale) = 0;
  /// Calls `change` for shards by their place in the list given to the constructor, once for all whose state is on
  /// their own device.
  using Change = std::function<void(std::span<const Operands>)>;
  /// See Change.
  void change_weights(std::span<const std::size_t> places, bool with_gradients, const Change& change);
  /// Updates shards in one pass, on a GPU in one or few launches.
  void update_shards(std::span<const std::size_t> places, double lr, const GradientScale& scale);
  /// Calls apply() for each learning rate.
  void apply_by_rate(std::span<const Operands> operands, double lr, const GradientScale& scale);
  /// As the public ones; null: without a mesh.
  void set_factors(const ParameterFactors& lr, const ParameterFactors& decay, const DeviceMesh* mesh);
  /// What both public functions do.
  void step(double lr, const GradientScale& scale);
  /// Calls `change` for all shards, in the order of what attach() was given.
  void over_shards(const DataParallel::UpdateShards& change);
  /// Without attach(): throws if a shard is not a whole parameter, or has no gradient.
  void require_own_gradients() const;
  std::vector<std::size_t> all_places() const;  ///< of all slots
  /// What attach() was given, or null. Throws if it no longer exists.
  DataParallel* gradients() const;
  /// Throws if a weight was changed, and its master was not.
  void require_masters_current();

  std::vector<Slot> slots_;
  LaterParameters later_;
  std::shared_ptr<const bool> exists_ = std::make_shared<const bool>(true);  // Parameter::optimizer
  // Operands that one pass updates: shards whose state is on their own device; reused by each step.
  std::vector<Operands> batch_;
  std::string name_;
  std::vector<std::string> moment_names_;
  bool offloaded_;
  DataParallel* gradients_ = nullptr;  // read by gradients()
  std::weak_ptr<const bool> gradients_lifetime_;
  std::int64_t steps_ = 0;
  bool has_lr_factors_ = false;
  std::optional<double> average_decay_;
  bool swapped_ = false;                        // the weights are the averages
  std::optional<std::uint64_t> rounding_seed_;  // of moments in bf16
};

/// Numbers of AdamW. The defaults are those of language models (Brown et al. 2020, appendix B), and differ from
/// torch.optim.AdamW's: beta2 0.95 (there 0.999), weight_decay 0.1 (there 0.01), and weight decay for parameters with
/// `decay` only, which are matrices (there for all). PyTorch's numbers are {.beta2 = 0.999, .weight_decay = 0.01}.
struct AdamWConfig {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double weight_decay = 0.1;                          ///< on parameters with `decay` only: matrices
  MemoryCategory memory = MemoryCategory::optimizer;  ///< where moments and masters live; or `offloaded`
};
/// Loshchilov and Hutter 2019, algorithm 2: decoupled weight decay, bias-corrected moments.
std::unique_ptr<Optimizer> make_adamw(const ShardList& shards, const AdamWConfig& config);
std::unique_ptr<Optimizer> make_adamw(const ParameterList& parameters, const AdamWConfig& config);

/// Numbers of SGD. The defaults are torch.optim.SGD's.
struct SgdConfig {
  double momentum = 0.0;
  bool nesterov = false;                              ///< needs a momentum above 0
  double weight_decay = 0.0;                          ///< on parameters with `decay` only; added to the gradient
  MemoryCategory memory = MemoryCategory::optimizer;  ///< where momentum and masters live; or `offloaded`
};
/// Sutskever et al. 2013, section 2, in PyTorch's form: v = momentum v + G, then w -= lr v, or by Nesterov's rule
/// w -= lr (G + momentum v); G is the gradient plus weight_decay w.
std::unique_ptr<Optimizer> make_sgd(const ShardList& shards, const SgdConfig& config);
std::unique_ptr<Optimizer> make_sgd(const ParameterList& parameters, const SgdConfig& config);

/// Numbers of Lion. The betas are the paper's.
struct LionConfig {
  double beta1 = 0.9, beta2 = 0.99;
  double weight_decay = 0.1;                          ///< on parameters with `decay` only; decoupled
  MemoryCategory memory = MemoryCategory::optimizer;  ///< where the moment and masters live; or `offloaded`
};
/// Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", algorithm 2. An update has one size, lr, in every
/// element, so the paper takes a learning rate 3 to 10 times smaller than AdamW's, and a weight decay as much larger.
/// Where beta1 m + (1 - beta1) g is near 0, rounding decides the sign of an update.
std::unique_ptr<Optimizer> make_lion(const ShardList& shards, const LionConfig& config);
std::unique_ptr<Optimizer> make_lion(const ParameterList& parameters, const LionConfig& config);

}  // namespace trireme::optim
