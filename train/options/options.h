// The options of a training run, whatever the model, and the flags that set them. Those of a GPT and its text are in
// train/gpt/gpt_options.h.
//
// A program declares the groups that it needs on a Flags object: training programs all of them, other programs a few.
// Values that a user may leave open are optional here; resolve() and the member functions fill them in.
// Read next: train/options/options.cpp (names, defaults, units), train/validate/validate.h (which combinations are
// refused).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "nn/build.h"
#include "optim/loss_scaler.h"
#include "optim/lr_schedule.h"
#include "parallel/mesh/mesh.h"
#include "parallel/pipeline/stage_plan.h"
#include "train/options/batch_sizes.h"
#include "train/options/flags.h"

namespace trireme {

struct ScheduleOptions {
  std::int64_t steps = 1000;
  optim::LrShape lr_schedule = optim::LrShape::cosine;
  double lr = 1e-3;
  std::optional<double> min_lr;  ///< not set: lr / 10
  std::int64_t warmup_steps = 0;
  std::optional<std::int64_t> decay_steps;  ///< not set: all steps; for wsd the last tenth of them

  /// The learning rate that cosine, linear and wsd end with.
  double final_lr() const { return min_lr.value_or(lr / 10); }
  /// cosine and linear: the step at which final_lr() is reached; wsd: how many steps the decay at the end takes.
  std::int64_t decay() const;
};

struct OptimizerOptions {
  std::string optimizer = "adamw";                    ///< adamw or sgd
  double weight_decay = 0.1;                          ///< on matrices only
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;       ///< adamw
  double momentum = 0.9;                              ///< sgd
  MemoryCategory memory = MemoryCategory::optimizer;  ///< of its state: or offloaded
  double clip = 1.0;                                  ///< largest norm of the whole gradient; 0: no clipping
};

struct MeshOptions {
  std::string axes = "dp=1";          ///< as written: "dp=2,tp=2,pp=2"
  std::string pipeline = "1f1b";      ///< gpipe, 1f1b, interleaved:V or zero-bubble
  std::string stage_layers = "auto";  ///< layers of each stage, "3,3,2", or auto: by cost
  std::int64_t zero = 0;              ///< what data-parallel ranks share: ZeroOptions::stage; 0: nothing
  std::optional<std::int64_t> zero_prefetch, zero_resident;  ///< stage 3; not set: the defaults below
  std::optional<std::int64_t> dp_shard;                      ///< not set: shard over all of dp x cp
  static constexpr std::int64_t default_prefetch = 1, default_resident = 100'000;
  std::string ranks = "auto";             ///< threads, mpi, or auto: mpi under a launcher, else threads
  std::optional<bool> sequence_parallel;  ///< not set: when tp > 1
  nn::ContextParallel context_parallel = nn::ContextParallel::ring;  ///< what attention does with cp > 1

  // Set by resolve():
  MeshShape shape;         ///< what `axes` means
  bool processes = false;  ///< ranks are MPI processes, not threads

  /// What the layers are built with, after resolve(). With tp = 1 there is nothing to cut.
  nn::Parallelism parallelism() const {
    return {.sequence = shape.size(Axis::tp) > 1 && sequence_parallel.value_or(true), .context = context_parallel};
  }
  int stages() const;  ///< of the pipeline: pp, times V with interleaved:V; after resolve()
  /// The blocks of each stage; after resolve(). `costs`: what --stage-layers auto balances. Throws ExitCode::usage for
  /// a --stage-layers that does not fit.
  pipeline::StagePlan stage_plan(int blocks, const pipeline::StageCosts& costs = {}) const;
};

/// Names for --attention of what the CPU has.
inline std::vector<std::string_view> cpu_attentions() { return {"trireme"}; }

struct PrecisionOptions {
  DType dtype = DType::f32;  ///< of weights and activations; gradients and master weights are f32 in any case
  std::string device = "cpu";
  std::string gemm = "auto";            ///< matrix product of the device, by name; on the CPU auto is resolved
  std::string attention = "auto";       ///< attention of the device, by name
  std::optional<std::int64_t> threads;  ///< per rank; not set: cores / ranks
  bool pin = true;                      ///< threads keep to cores of their own, where there are enough
  bool keep_packed = false;             ///< weights' panels, over the micro-batches of a step (core/packed_weights.h)
  std::string recompute = "none";       ///< none, selective, full or every:K
  std::string loss_scale = "auto";      ///< auto: dynamic in f16; dynamic, or a number
  optim::LossScaleConfig scaling;       ///< window and hysteresis; the rest is set by resolve()

  nn::Recompute recompute_plan() const;  ///< throws ExitCode::usage for what --recompute cannot be
  optim::LossScaler make_scaler() const;
  Device tensor_device() const { return device == name(Device::cuda) ? Device::cuda : Device::cpu; }
};

struct RunOptions {
  std::int64_t seed = 1337;
  std::int64_t log_every = 10;  ///< steps
  std::int64_t eval_every = 0;  ///< steps; 0: only before the first and after the last step
  std::optional<std::int64_t> eval_batches =
      20;                              ///< of EvalWindows::batch sequences; not set: the whole validation part once
  std::int64_t sample_every = 0;       ///< steps; 0: never
  std::int64_t sample_length = 200;    ///< tokens
  std::string out;                     ///< folder for metrics, configuration and weights; empty: none
  std::string resume = "none";         ///< auto, none, or what an earlier run saved
  std::int64_t checkpoint_every = 0;   ///< steps; 0: only after the last
  double checkpoint_minutes = 0;       ///< 0: only by steps
  std::optional<std::int64_t> keep;    ///< checkpoints; not set: all
  double timeout = 30;                 ///< seconds without a sign of life after which a rank is lost
  bool dry_run = false;                ///< everything up to the first step
  std::string profile;                 ///< file for a trace of some steps; empty: none
  std::int64_t profile_steps = 3;      ///< how many
  bool verify = false;                 ///< compare what should be the same on several ranks
  bool allow_fault_injection = false;  ///< whether TRIREME_FAULT may be set

  // Not flags:
  std::string faults;  ///< the value of TRIREME_FAULT (train/faults/injection.h)
  std::string config;  ///< every flag of the program as --config takes it: ranks compare it, folders and checkpoints
                       ///< keep it
};

/// What a run watches itself for: train/guards/guards.h.
struct GuardOptions {
  std::int64_t max_skipped = 5;      ///< steps in a row that are not finite, which end the run
  double spike_threshold = 0;        ///< of a loss's robust z; 0: no detector
  std::int64_t spike_window = 100;   ///< losses that one is judged by
  std::int64_t spike_rollbacks = 2;  ///< in a run
  std::int64_t check_replicas = 10;  ///< steps between comparisons of copies; 0: never
  bool check_state = false;          ///< with ZeRO: shards of moments are sealed too
};

/// What every training program can be told.
struct TrainOptions {
  BatchOptions batch;
  ScheduleOptions schedule;
  OptimizerOptions optimizer;
  MeshOptions mesh;
  PrecisionOptions precision;
  RunOptions run;
  GuardOptions guards;

  BatchSizes batch_sizes() const;  ///< after resolve()
};

// One function per group; the options must outlive the flags.
void declare_batch(Flags& flags, BatchOptions& options);
void declare_schedule(Flags& flags, ScheduleOptions& options);
void declare_optimizer(Flags& flags, OptimizerOptions& options);
void declare_mesh(Flags& flags, MeshOptions& options);
void declare_precision(Flags& flags, PrecisionOptions& options);
void declare_run(Flags& flags, RunOptions& options);
void declare_samples(Flags& flags, RunOptions& options);  // and validation batches: for models of text
void declare_checkpoints(Flags& flags, RunOptions& options);
void declare_guards(Flags& flags, GuardOptions& options);
/// Every group of TrainOptions but declare_samples().
void declare_training(Flags& flags, TrainOptions& options);

/// Settles what was left to be inferred and needs no data: ranks, mesh, batch. `launcher_ranks`: how many ranks a
/// launcher started, 0 without one. Throws ExitCode::usage for what cannot be.
void resolve(TrainOptions& options, int launcher_ranks);

}  // namespace trireme
