// The options of a training run that do not depend on the model, and the flags that set them. The options of a GPT and
// its text are in train/gpt/gpt_options.h.
//
// A program declares the groups that it needs on a Flags object: training programs all of them, other programs a few.
// Values that a user may leave open are optional; resolve() and the member functions fill them in.
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
#include "optim/muon.h"
#include "parallel/comm/algorithms/algorithm.h"
#include "parallel/mesh/mesh.h"
#include "parallel/pipeline/stage_plan.h"
#include "train/options/batch_sizes.h"
#include "train/options/flags.h"

namespace trireme {

/// Steps, batch and learning rate.
struct ScheduleOptions {
  std::int64_t steps = 1000;
  optim::LrShape lr_schedule = optim::LrShape::cosine;
  double lr = 1e-3;
  std::optional<double> min_lr;  ///< not set: lr / 10
  std::int64_t warmup_steps = 0;
  std::optional<double> warmup_lr;  ///< of the first step of a warm-up; not set: lr / (warmup_steps + 1)
  /// cosine and linear: the step at which final_lr() is reached; not set: the last. wsd: how many steps the decay at
  /// the end takes; not set: a tenth of all.
  std::optional<std::int64_t> decay_steps;

  /// The learning rate at the end of cosine, linear and wsd.
  double final_lr() const { return min_lr.value_or(lr / 10); }
  std::int64_t decay_begin() const;  ///< the step from which the learning rate falls
  std::int64_t decay_end() const;    ///< the step at which it is final_lr()
};

/// Which optimizer, and its numbers.
struct OptimizerOptions {
  std::string optimizer = "adamw";  ///< adamw, sgd, lion, muon or adafactor
  double weight_decay = 0.1;        ///< of matrices only
  double beta1 = 0.9, eps = 1e-8;   ///< adamw, lion, muon; adamw, muon
  std::optional<double> beta2;      ///< adamw, lion, muon; not set: second_beta()
  std::optional<double> momentum;   ///< sgd, muon; not set: decay_of_momentum()
  std::optional<bool> nesterov;     ///< sgd, muon; not set: looks_ahead()
  std::optional<double> muon_lr;    ///< muon: of matrices; not set: matrix_lr()
  optim::MuonScale muon_scale = optim::MuonScale::original;
  double adafactor_decay = 0.8, adafactor_clip = 1;   ///< adafactor: beta2 is 1 - t^-decay; largest rms of an update
  bool adafactor_relative = false;                    ///< adafactor: updates in proportion to the weights
  MemoryCategory memory = MemoryCategory::optimizer;  ///< where optimizer state is counted: optimizer, or offloaded
  DType moments = DType::f32;                         ///< in which moments are stored: f32 or bf16
  double clip = 1.0;                                  ///< largest norm of the whole gradient; 0: no clipping
  std::string freeze;                                 ///< patterns of parameters that are not trained
  std::string lr_factor, decay_factor;                ///< by parameter: optim/parameter_factors.h
  std::optional<double> ema_decay;                    ///< of the average of the weights; not set: no average
  bool eval_ema = false;                              ///< validation losses and samples are of the average

  double second_beta() const { return beta2.value_or(optimizer == "lion" ? 0.99 : 0.95); }
  double decay_of_momentum() const { return momentum.value_or(optimizer == "muon" ? 0.95 : 0.9); }
  bool looks_ahead() const { return nesterov.value_or(optimizer == "muon"); }
  /// The largest learning rate of matrices under muon; `lr`: that of the other parameters.
  double matrix_lr(double lr) const { return muon_lr.value_or(muon_scale == optim::MuonScale::original ? 0.02 : lr); }
};

/// Mesh, pipeline, ZeRO, and how ranks start.
struct MeshOptions {
  std::string axes = "dp=1";          ///< as written: "dp=2,tp=2,pp=2"
  std::string pipeline = "1f1b";      ///< parallel/pipeline/schedules.h
  std::string stage_layers = "auto";  ///< number of layers of each stage, "3,3,2", or auto: balanced by cost
  std::int64_t zero = 0;              ///< ZeroOptions::stage; 0: no sharding over data-parallel ranks
  std::optional<std::int64_t> zero_prefetch, zero_resident;  ///< stage 3; not set: the defaults below
  std::optional<std::int64_t> dp_shard;                      ///< not set: shard over all of dp x cp
  static constexpr std::int64_t default_prefetch = 1, default_resident = 100'000;
  std::string ranks = "auto";         ///< threads, mpi, or auto: mpi under a launcher, else threads
  std::optional<SumOrder> reduction;  ///< sums of activations and gradients; not set: any by NCCL, else ranks
  comm::Algorithm collectives = comm::Algorithm::exact;
  std::string links;                                                 ///< file of artificial links; empty: none
  std::optional<bool> sequence_parallel;                             ///< not set: on if tp > 1
  nn::ContextParallel context_parallel = nn::ContextParallel::ring;  ///< attention method when cp > 1

  // Set by resolve():
  MeshShape shape;         ///< `axes`, parsed
  bool processes = false;  ///< ranks are MPI processes, not threads

  /// The parallel options for layers; after resolve(). With tp = 1, sequence parallelism is off.
  nn::Parallelism parallelism() const {
    return {.sequence = shape.size(Axis::tp) > 1 && sequence_parallel.value_or(true), .context = context_parallel};
  }
  int stages() const;  ///< number of pipeline stages: pp, times V with interleaved:V; after resolve()
  /// The blocks of each stage; after resolve(). `costs` is what --stage-layers auto balances. Throws ExitCode::usage if
  /// --stage-layers does not match the model or the mesh.
  pipeline::StagePlan stage_plan(int blocks, const pipeline::StageCosts& costs = {}) const;
};

/// The CPU's attention implementations, as names for --attention.
inline std::vector<std::string_view> cpu_attentions() { return {"trireme"}; }

/// Dtype, device, kernels, threads, recomputation and loss scale.
struct PrecisionOptions {
  DType dtype = DType::f32;  ///< of weights and activations; gradients and master weights are always f32
  std::string device = "cpu";
  std::string gemm = "auto";            ///< GEMM implementation of the device, by name; on the CPU, resolve() replaces
                                        ///< auto
  std::string attention = "auto";       ///< attention implementation of the device, by name
  std::optional<std::int64_t> threads;  ///< per rank; not set: cores / ranks
  bool pin = true;                      ///< pin threads to cores of their own if there are enough
  bool keep_packed = false;             ///< keep packed weights over the micro-batches of a step
                                        ///< (core/packed_weights.h)
  std::string recompute = "none";       ///< none, selective, full or every:K
  std::string loss_scale = "auto";      ///< auto: dynamic in f16; dynamic, or a number
  optim::LossScaleConfig scaling;       ///< from flags: window and hysteresis; make_scaler() sets the rest

  nn::Recompute recompute_plan() const;   ///< throws ExitCode::usage for an invalid --recompute
  optim::LossScaler make_scaler() const;  ///< of these options
  Device tensor_device() const { return device == name(Device::cuda) ? Device::cuda : Device::cpu; }
};

/// Seed, logs, evaluation, samples, output folder, checkpoints.
struct RunOptions {
  std::int64_t seed = 1337;
  std::int64_t log_every = 10;             ///< steps
  std::optional<std::int64_t> eval_every;  ///< steps; 0: only before the first and after the last step; not set:
                                           ///< evaluation_interval() (train/step/evaluate.h)
  std::optional<std::int64_t> eval_batches =
      20;                              ///< batches of EvalWindows::batch sequences; not set: the whole validation part
                                       ///< once
  std::int64_t sample_every = 0;       ///< steps; 0: never
  std::int64_t sample_length = 200;    ///< tokens
  std::string out_choice = "auto";     ///< --out: a folder, none, or auto: a new one, runs/NAME-DATE
  std::string resume = "none";         ///< auto, none, or the path of a run's folder or checkpoint
  std::int64_t checkpoint_every = 0;   ///< steps; 0: only after the last step
  double checkpoint_minutes = 0;       ///< 0: no limit in time
  std::optional<std::int64_t> keep;    ///< number of checkpoints; not set: all
  bool keep_best = true;               ///< save at the lowest validation loss so far, and keep that one
  double timeout = 30;                 ///< seconds without a heartbeat after which a rank counts as lost
  bool dry_run = false;                ///< stop before the first step
  std::string profile;                 ///< file for a trace of some steps; empty: none
  std::int64_t profile_steps = 3;      ///< number of steps in the trace
  bool verify = false;                 ///< compare data that should be the same on several ranks
  bool quiet = false;                  ///< print only warnings, errors and the result
  bool verbose = false;                ///< also on a terminal: all details of the plan
  bool json = false;                   ///< print events as JSON lines instead of text
  bool allow_fault_injection = false;  ///< whether TRIREME_FAULT may be set

  // Not flags:
  std::string out;     ///< folder for metrics, configuration and checkpoints; empty: nothing is kept. Set by resolve(),
                       ///< and for --out auto when training starts (train/runs/new_folder.h)
  std::string config;  ///< all flags of the program as --config takes them; ranks compare it, and folders and
                       ///< checkpoints store it

  bool loads_weights = false;  ///< the model is made for the weights of a checkpoint, which are loaded before it is
                               ///< used: make_build() then draws none. Set for a run that resumes

  /// Whether the run has a folder, or will have one when it starts.
  bool keeps_files() const { return !out.empty() || out_choice == "auto"; }
  /// Whether the program chooses the folder.
  bool chooses_folder() const { return out_choice == "auto"; }
};

/// Options of the checks that a run makes of itself: train/loop/guards.h.
struct GuardOptions {
  std::int64_t max_skipped = 5;      ///< non-finite steps in a row that end the run
  double spike_threshold = 0;        ///< in robust standard deviations of the loss; 0: no detector
  std::int64_t spike_window = 100;   ///< number of recent losses that a new loss is compared with
  std::int64_t spike_rollbacks = 2;  ///< rollbacks allowed in a run
  std::int64_t check_replicas = 10;  ///< steps between comparisons of replicas; 0: never
  bool check_state = false;          ///< with ZeRO: also checksum the shards of the moments
};

/// The options of every training program.
struct TrainOptions {
  BatchOptions batch;
  ScheduleOptions schedule;
  OptimizerOptions optimizer;
  MeshOptions mesh;
  PrecisionOptions precision;
  RunOptions run;
  GuardOptions guards;

  BatchSizes batch_sizes() const;  ///< after resolve()
  int threads_per_rank() const;    ///< on this machine; after resolve()
};

// One function per group. The options must outlive the flags.
void declare_batch(Flags& flags, BatchOptions& options);
void declare_schedule(Flags& flags, ScheduleOptions& options);
void declare_optimizer(Flags& flags, OptimizerOptions& options);
void declare_mesh(Flags& flags, MeshOptions& options);
void declare_precision(Flags& flags, PrecisionOptions& options);
void declare_run(Flags& flags, RunOptions& options);
void declare_output(Flags& flags, RunOptions& options);
/// Samples, and validation batches; for language models.
void declare_samples(Flags& flags, RunOptions& options, const double& val_fraction);
/// Declares the flags of checkpoints.
void declare_checkpoints(Flags& flags, RunOptions& options);
/// Declares the flags of guards.
void declare_guards(Flags& flags, GuardOptions& options, const MeshOptions& mesh);
/// Declares every group of TrainOptions except declare_samples().
void declare_training(Flags& flags, TrainOptions& options);

/// Fills in what can be inferred without data: ranks, mesh, batch. `launcher_ranks`: how many ranks a launcher started,
/// 0 without one. Throws ExitCode::usage for options that contradict each other.
void resolve(TrainOptions& options, int launcher_ranks);

}  // namespace trireme
