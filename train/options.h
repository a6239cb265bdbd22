// Everything a training run can be told, and the flags that say it.
//
// A program declares the groups it needs on a Flags object: train_gpt declares all of them, other programs a few.
// Values a user may leave open are optional here; resolve() and the member functions fill them in.
// Read next: train/options.cpp (names, defaults, units), train/validate.h (which combinations are refused).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "data/corpus.h"
#include "models/gpt_config.h"
#include "nn/build.h"
#include "optim/loss_scaler.h"
#include "optim/lr_schedule.h"
#include "parallel/mesh/mesh.h"
#include "parallel/pipeline/stage_plan.h"
#include "train/batch_sizes.h"
#include "train/flags.h"

namespace trireme {

struct DataOptions {
  std::string data;                ///< a text file, a folder of them, or token shards
  std::string tokenizer = "auto";  ///< char, byte, bpe:PATH, or auto: char, or what token shards came with
  double val_fraction = 0.1;       ///< of the text, its last part

  bool document_mask = false;                      ///< whether attention stays within a document
  std::optional<std::int64_t> document_separator;  ///< the token that ends one; not set: the tokenizer's end of text

  /// What GptConfig::document_separator is to be. Throws ExitCode::usage when documents are to be told apart and there
  /// is nothing to tell them by, or the separator is not one of the `vocab` tokens.
  std::optional<std::int64_t> separator(std::optional<std::int64_t> end_of_text, std::int64_t vocab) const;
};

struct ModelOptions {
  std::string preset = "custom";      ///< a published size, or custom
  GptConfig config;                   ///< but for the vocabulary
  std::optional<std::int64_t> vocab;  ///< not set: the tokenizer's

  /// The model for a tokenizer of `tokenizer_vocab` ids. Throws ExitCode::usage when --vocab is smaller.
  GptConfig with_vocab(std::int64_t tokenizer_vocab) const;
};

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

  std::string faults;  ///< not a flag: the value of TRIREME_FAULT (train/fault_injection.h)
};

/// What a run watches itself for: train/guards.h.
struct GuardOptions {
  std::int64_t max_skipped = 5;      ///< steps in a row that are not finite, which end the run
  double spike_threshold = 0;        ///< of a loss's robust z; 0: no detector
  std::int64_t spike_window = 100;   ///< losses that one is judged by
  std::int64_t spike_rollbacks = 2;  ///< in a run
  std::int64_t check_replicas = 10;  ///< steps between comparisons of copies; 0: never
  bool check_state = false;          ///< with ZeRO: shards of moments are sealed too
};

struct TrainOptions {
  DataOptions data;
  ModelOptions model;
  BatchOptions batch;
  ScheduleOptions schedule;
  OptimizerOptions optimizer;
  MeshOptions mesh;
  PrecisionOptions precision;
  RunOptions run;
  GuardOptions guards;

  CorpusOptions corpus() const;    ///< what load_corpus() takes
  BatchSizes batch_sizes() const;  ///< after resolve()
  /// The blocks of each pipeline stage; after resolve(), for the model as it is now. Throws ExitCode::usage for a
  /// --stage-layers that does not fit.
  pipeline::StagePlan stage_plan() const;
};

// One function per group; the options must outlive the flags.
void declare_data(Flags& flags, DataOptions& options);
void declare_documents(Flags& flags, DataOptions& options);  // a part of declare_data
void declare_model(Flags& flags, ModelOptions& options);
void declare_experts(Flags& flags, ModelOptions& options);
void declare_batch(Flags& flags, BatchOptions& options);
void declare_schedule(Flags& flags, ScheduleOptions& options);
void declare_optimizer(Flags& flags, OptimizerOptions& options);
void declare_mesh(Flags& flags, MeshOptions& options);
void declare_precision(Flags& flags, PrecisionOptions& options);
void declare_run(Flags& flags, RunOptions& options);
void declare_checkpoints(Flags& flags, RunOptions& options);
void declare_guards(Flags& flags, GuardOptions& options);
void declare_all(Flags& flags, TrainOptions& options);

/// Settles what was left to be inferred and needs no data: ranks, mesh, batch. `launcher_ranks`: how many ranks a
/// launcher started, 0 without one. Throws ExitCode::usage for what cannot be.
void resolve(TrainOptions& options, int launcher_ranks);

/// The flags of train_gpt: parsed, resolved and validated. Empty when the user asked for --help or --print-config,
/// which is then printed (by the launcher's first rank) and nothing else is to be done.
std::optional<TrainOptions> read_train_options(int argc, const char* const* argv);

/// `options` in the form that --config takes: what --print-config prints and config.json holds.
std::string config_text(const TrainOptions& options);

}  // namespace trireme
