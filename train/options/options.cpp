// The flags of training programs, one function per subject.
#include "train/options/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/kernels.h"
#include "cuda/selection.h"
#include "data/eval_windows.h"
#include "parallel/pipeline/schedules.h"
#include "train/options/batch_sizes.h"
#include "train/options/optimizer_kinds.h"
#include "train/program/launcher.h"

namespace trireme {
namespace {

const Range count = Range::count(), count_or_none = Range::count(0);

std::vector<std::string> strings(const std::vector<std::string_view>& views) { return {views.begin(), views.end()}; }

/// Names of the CPU's implementations, then auto, then implementations that only the GPU has.
std::vector<std::string> choices(const std::vector<std::string_view>& host, const std::vector<std::string_view>& gpu) {
  std::vector<std::string> names = strings(host);
  names.emplace_back("auto");
  for (const std::string_view name : gpu)
    if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
  return names;
}

/// Error texts for GPU implementations that this build lacks. While flags are parsed, --device may not be known yet.
/// The text therefore first suggests the remedy that needs no other build.
std::vector<std::pair<std::string, std::string>> of_other_builds(const cuda::Absent& absent,
                                                                 const std::vector<std::string>& here) {
  std::vector<std::pair<std::string, std::string>> reasons;
  for (const auto& [name, why] : absent) {
    const std::string without_cuda = fmt::format(
        "{} is for GPUs, and this program was built without CUDA; expected one of --device cpu: {}; use one of these, "
        "or --device cuda with a build configured with -DTRIREME_CUDA=ON",
        name, fmt::join(here, ", "));
    reasons.emplace_back(name, why.empty() ? without_cuda : why);
  }
  return reasons;
}

}  // namespace

void declare_batch(Flags& flags, BatchOptions& o) {
  flags.group("batch (two of the three give the third)");
  flags.add("micro-batch", "N", o.micro_batch, "auto",
            "sequences in a micro-batch on one dp rank; auto: inferred, or 12", count);
  flags.add("global-batch", "N", o.global_batch, "auto",
            "sequences in a step over all ranks; auto: micro-batch x dp x micro-batches", count);
  flags.add(
      "micro-batches", "N", o.micro_batches, "auto",
      "micro-batches in a step on one dp rank: gradient accumulation, and what fills a pipeline; auto: inferred, or 1",
      count);
}

void declare_schedule(Flags& flags, ScheduleOptions& o) {
  flags.group("schedule");
  flags.add("steps", "N", o.steps, "optimizer steps", count);
  std::vector<std::pair<std::string, optim::LrShape>> shapes;
  for (const std::string_view shape : optim::lr_shape_names()) shapes.emplace_back(shape, *optim::lr_shape(shape));
  flags.add_choice("lr-schedule", o.lr_schedule, shapes,
                   "the learning rate after warm-up; wsd: constant, then linear decay at the end");
  flags.add("lr", "F", o.lr, "largest learning rate", Range::above(0));
  flags.add("min-lr", "F", o.min_lr, "auto", "last learning rate; auto: --lr / 10", Range::at_least(0));
  const auto decays = [&o] { return o.lr_schedule != optim::LrShape::constant; };
  flags.only_with("lr-schedule", "cosine, linear or wsd", decays);
  flags.add("warmup-steps", "N", o.warmup_steps, "steps of linear warm-up", count_or_none);
  flags.add("warmup-lr", "F", o.warmup_lr, "auto",
            "learning rate of the first step of the warm-up, which may be 0; auto: --lr / (--warmup-steps + 1)",
            Range::at_least(0));
  flags.only_with("warmup-steps", "above 0", [&o] { return o.warmup_steps > 0; });
  flags.add("decay-steps", "N", o.decay_steps, "auto",
            "step at which --min-lr is reached; auto: --steps. For wsd: length of the decay; auto: a tenth of --steps",
            count);
  flags.only_with("lr-schedule", "cosine, linear or wsd", decays);
}

void declare_optimizer(Flags& flags, OptimizerOptions& o) {
  flags.group("optimizer");
  flags.add_choice("optimizer", o.optimizer, optimizer_names(), optimizer_help());
  flags.add("weight-decay", "F", o.weight_decay, "decay of matrices (not of biases and norms)", Range::at_least(0));
  const auto only_for = [&](const std::vector<std::string>& optimizers) {
    flags.only_with("optimizer", fmt::format("{}", fmt::join(optimizers, " or ")), [&o, optimizers] {
      return std::find(optimizers.begin(), optimizers.end(), o.optimizer) != optimizers.end();
    });
  };
  flags.add("beta1", "F", o.beta1, "adamw: decay of the mean gradient; lion: of the momentum in an update",
            Range::half_open(0, 1));
  only_for({"adamw", "muon", "lion"});
  flags.add("beta2", "F", o.beta2, "auto",
            "adamw: decay of the mean squared gradient; lion: of the momentum; auto: 0.95, lion 0.99",
            Range::half_open(0, 1));
  only_for({"adamw", "muon", "lion"});
  flags.add("eps", "F", o.eps, "adamw: added to the root of the mean square", Range::above(0));
  only_for({"adamw", "muon"});
  flags.add("momentum", "F", o.momentum, "auto",
            "sgd: decay of the summed gradient; muon: of the mean gradient of a matrix; auto: sgd 0.9, muon 0.95",
            Range::half_open(0, 1));
  only_for({"sgd", "muon"});
  flags.add_choice<std::optional<bool>>("nesterov", o.nesterov, {{"auto", std::nullopt}, {"on", true}, {"off", false}},
                                        "look ahead along the momentum; auto: sgd off, muon on");
  only_for({"sgd", "muon"});
  flags.add("muon-lr", "F", o.muon_lr, "auto",
            "muon: largest learning rate of matrices, which follows the schedule of --lr (for the other parameters); "
            "auto: 0.02, or --lr with --muon-scale match-rms-adamw",
            Range::above(0));
  only_for({"muon"});
  flags.add_choice("muon-scale", o.muon_scale,
                   {{"original", optim::MuonScale::original}, {"match-rms-adamw", optim::MuonScale::match_rms_adamw}},
                   "muon: factor of the update of a matrix [R, C]; original: sqrt(max(1, R/C)); match-rms-adamw: "
                   "0.2 sqrt(max(R, C)), for the learning rates of adamw");
  only_for({"muon"});
  flags.add("adafactor-decay", "F", o.adafactor_decay, "adafactor: at step t, the mean squares decay by 1 - t^-F",
            Range::above(0));
  only_for({"adafactor"});
  flags.add("adafactor-clip", "F", o.adafactor_clip, "adafactor: largest root mean square of the update of a matrix",
            Range::above(0));
  only_for({"adafactor"});
  flags.add_switch("adafactor-relative", o.adafactor_relative,
                   "adafactor: multiply the update of a matrix by the root mean square of its weights, at least 0.001");
  only_for({"adafactor"});
  flags.add_choice("offload", o.memory, {{"none", MemoryCategory::optimizer}, {"optimizer", MemoryCategory::offloaded}},
                   "optimizer: its state stays in host memory, also with --device cuda, and is counted separately");
  flags.add_choice("moments", o.moments, {{"f32", DType::f32}, {"bf16", DType::bf16}},
                   "how the optimizer's moments are stored; bf16: half the memory, rounded at random");
  flags.add("clip", "F", o.clip, "largest norm of the whole gradient; 0: no clipping", Range::at_least(0));
  flags.add("freeze", "PATTERN,...", o.freeze,
            "parameters by name that are not trained, as in wte.weight,blocks.0.*: no gradient, no optimizer state");
  flags.add("lr-factor", "PATTERN=F,...", o.lr_factor,
            "multiplies the learning rate of parameters by name, as in wte.weight=0.2,blocks.*.attn.*=0.5; the last "
            "pattern that matches counts");
  flags.add("decay-factor", "PATTERN=F,...", o.decay_factor, "the same for the weight decay of matrices");
  flags.add("ema-decay", "F", o.ema_decay, "none",
            "keep an exponential moving average of the weights with this decay, such as 0.999; it is saved in "
            "checkpoints; none: no average",
            Range::half_open(0, 1));
  flags.add_switch("eval-ema", o.eval_ema, "validation losses and samples are those of the average");
  flags.only_with("ema-decay", "a number", [&o] { return o.ema_decay.has_value(); });
}

void declare_mesh(Flags& flags, MeshOptions& o) {
  flags.group("mesh");
  flags.add(
      "mesh", "AXES", o.axes,
      "ranks along the axes dp (data), tp (tensor), pp (pipeline) and cp (context), as in dp=2,tp=2,pp=2; ep (expert) "
      "divides the ranks of dp x cp into groups; axes that are left out are 1; dp=auto: all "
      "remaining ranks of the launcher; auto, in training: the fastest on this machine's cores, by measuring");
  flags.add("pipeline", pipeline::schedule_spellings("|"), o.pipeline, pipeline::schedule_help());
  flags.add("stage-layers", "auto|LIST", o.stage_layers,
            "layers of each pipeline stage in order, as in 3,3,2; auto: balanced by cost, embedding and head counted");
  flags.add_choice(
      "context-parallel", o.context_parallel,
      {{"ring", nn::ContextParallel::ring}, {"ulysses", nn::ContextParallel::ulysses}},
      "attention over cp; ring: ranks pass keys and values around; ulysses: ranks exchange heads for tokens");
  flags.only_with("mesh", "with cp above 1", [&o] { return o.shape.size(Axis::cp) > 1; });
  flags.add_choice("zero", o.zero, {{"0", 0}, {"1", 1}, {"2", 2}, {"3", 3}},
                   "what data-parallel ranks shard instead of replicating; 1: optimizer state; 2: also gradients; 3: "
                   "also weights");
  flags.add("zero-prefetch", "N", o.zero_prefetch, "1", "--zero 3: blocks gathered ahead of the one in use",
            Range{.low = 0, .high = 64});
  flags.only_with("zero", "3", [&o] { return o.zero == 3; });
  flags.add("zero-resident", "BYTES", o.zero_resident, "100000", "--zero 3: smaller weights stay whole on every rank",
            Range::at_least(0));
  flags.only_with("zero", "3", [&o] { return o.zero == 3; });
  flags.add("dp-shard", "N", o.dp_shard, "all",
            "--zero 1, 2, 3: shard within groups of N adjacent ranks of dp x cp, and replicate across the groups; all: "
            "shard over all of them",
            count);
  flags.only_with("zero", "1, 2 or 3", [&o] { return o.zero > 0; });
  flags.add_choice("ranks", o.ranks, {"auto", "threads", "mpi"},
                   "what a rank is; auto: mpi processes under a launcher, else threads of this process");
  flags.add_choice<std::optional<SumOrder>>(
      "reduction", o.reduction, {{"auto", std::nullopt}, {"exact", SumOrder::ranks}, {"fast", SumOrder::any}},
      "how activations and gradients are summed over ranks; exact: in rank order, 16-bit types in f32, which gives the "
      "same bits by every transport; fast: NCCL or MPI adds, in an order of its own, and NCCL adds 16-bit types in 16 "
      "bits; auto: fast by NCCL, else exact. Rank threads have only exact");
  flags.add_choice(
      "collectives", o.collectives, comm::algorithms(),
      "by which messages collectives are made; exact: sums in rank order, the fastest way; the others add "
      "in an order of their own unless --reduction is exact; hierarchical needs --links (docs/collectives.md)");
  flags.add("links", "FILE", o.links,
            "rank threads exchange messages over the artificial links of this JSON file, in the time that these take "
            "(docs/collectives.md)");
  flags.add_choice<std::optional<bool>>(
      "sequence-parallel", o.sequence_parallel, {{"auto", std::nullopt}, {"on", true}, {"off", false}},
      "between the matrix products of a block each tp rank holds its part of the positions, not a copy of all; auto: "
      "on. No difference with tp=1");
}

void declare_precision(Flags& flags, PrecisionOptions& o) {
  flags.group("precision and machine");
  flags.add_choice("dtype", o.dtype, {{"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}},
                   "of weights and activations; gradients and the optimizer's weights are f32 in any case");
  flags.add("loss-scale", "auto|dynamic|F", o.loss_scale,
            "f16: what the loss is multiplied by before backward; auto: dynamic, with f16");
  flags.add("loss-scale-window", "N", o.scaling.window, "steps without overflow after which a dynamic scale doubles",
            count);
  flags.add("loss-scale-hysteresis", "N", o.scaling.hysteresis, "overflows it takes to halve a dynamic scale", count);
  flags.add("recompute", "none|selective|full|every:K", o.recompute,
            "what backward recomputes instead of keeping it; selective: outputs of norms and activations; full: "
            "everything in a block except its input; every:K: the same in every K-th block");
  flags.add_choice("device", o.device, {"cpu", "cuda"}, "where tensors live; cuda: a GPU, or an error");
  flags.add_choice("gemm", o.gemm, choices(gemm_names(), cuda::gemm_names()),
                   "implementation of matrix products; auto, trireme: our own kernels, on a GPU for each product the "
                   "first that accepts it; libraries run only if named");
  flags.choices_of_other_builds(of_other_builds(cuda::absent_gemms(), choices(gemm_names(), {})));
  flags.add_choice(
      "attention", o.attention, choices(cpu_attentions(), cuda::attention_names()),
      "implementation of attention; auto, trireme: our own kernels, on a GPU for each call the first that accepts it; "
      "libraries run only if named (on the CPU there are none)");
  flags.choices_of_other_builds(of_other_builds(cuda::absent_attentions(), choices(cpu_attentions(), {})));
  flags.add("threads", "N", o.threads, "auto", "threads of a rank; auto: cores / ranks", count);
  flags.add_choice(
      "keep-packed", o.keep_packed, {{"on", true}, {"off", false}},
      "keep packed copies of the weights of linear layers (not of experts) over the micro-batches of a step: all but "
      "the first are faster, for twice the memory of the weights; on the CPU, with --gemm trireme, and --zero 2 at "
      "most");
  flags.add_choice("pin", o.pin, {{"on", true}, {"off", false}},
                   "pin threads to cores of their own, if there are enough; off: the system chooses");
}

void declare_run(Flags& flags, RunOptions& o) {
  flags.group("run");
  flags.add("seed", "N", o.seed, "of initial weights, sample order and dropout", Range::at_least(0));
  flags.add("log-every", "N", o.log_every, "steps between lines of output and metrics", count);
  flags.add("eval-every", "N", o.eval_every, "auto",
            "steps between validation losses; 0: only before the first and after the last step; auto: 20 times in a "
            "run, or less often if that takes more than about a tenth of the time",
            count_or_none);
  flags.add("out", "DIR|auto|none", o.out_choice,
            "folder for metrics.jsonl, config.json and checkpoints, made if absent; auto: a new folder, "
            "runs/NAME-DATE; none: nothing is kept");
  flags.not_empty();
  flags.add(
      "profile", "FILE", o.profile,
      "trace of some steps after the first two, for chrome://tracing or ui.perfetto.dev, and a table of kernels at "
      "the end, compared with the machine's limits; on a GPU this waits for each kernel");
  flags.not_empty();
  flags.add("profile-steps", "N", o.profile_steps, "steps that --profile records", count);
  flags.add_switch("verify", o.verify,
                   "compare what should be the same on several ranks, bit by bit: replicated tensors at every move, "
                   "copies of weights and of the optimizer's state after every step, every collective with its call "
                   "site; slow, same numbers",
                   true);
  flags.add(
      "timeout", "SECONDS", o.timeout,
      "if others wait for a rank, and it shows no sign of life for this time, it counts as lost, and the job ends "
      "with 75; a rank that computes has no time limit while it sends heartbeats, and counts as lost after 20 times "
      "this long without one",
      Range::at_least(0.1));
  flags.add_switch("dry-run", o.dry_run, "everything up to the first step: plan, memory, schedule", true);
  flags.add_switch("allow-fault-injection", o.allow_fault_injection,
                   "inject the faults that the variables TRIREME_FAULT and TRIREME_IO_FAULT name; for tests", true);
}

void declare_output(Flags& flags, RunOptions& o) {
  flags.group("output");
  flags.add_switch("quiet", o.quiet, "print only warnings, the result and errors", true);
  flags.add_switch("verbose", o.verbose, "print all details of the plan on a terminal, as always in a pipe", true);
  flags.add_switch("json", o.json, "print events as JSON lines, and nothing else, on standard output", true);
}

void declare_samples(Flags& flags, RunOptions& o, const double& val_fraction) {
  flags.group("validation and samples");
  flags.add(
      "eval-batches", "N", o.eval_batches, "all",
      fmt::format("batches of {} sequences in a validation loss, the same ones on every mesh and with every "
                  "--micro-batch; all, also the upper limit: the whole validation part once, in windows that do not "
                  "overlap",
                  EvalWindows::batch),
      count);
  flags.only_with("val-fraction", "above 0", [&val_fraction] { return val_fraction > 0; });
  flags.add("sample-every", "N", o.sample_every, "steps between text samples; 0: never", count_or_none);
  flags.add("sample-length", "N", o.sample_length, "tokens of a sample", count);
  flags.only_with("sample-every", "above 0", [&o] { return o.sample_every > 0; });
}

void declare_checkpoints(Flags& flags, RunOptions& o) {
  flags.group("checkpoints");
  flags.add("checkpoint-every", "N", o.checkpoint_every,
            "steps between checkpoints, which are written while training goes on; 0: only after the last step (and "
            "see --keep-best)",
            count_or_none);
  flags.add("checkpoint-minutes", "M", o.checkpoint_minutes,
            "most minutes between checkpoints, in addition to --checkpoint-every; 0: no limit", Range::at_least(0));
  flags.add("keep", "N", o.keep, "all",
            "number of newest checkpoints to keep; older ones are removed once a new one is verified", count);
  flags.add_switch("keep-best", o.keep_best,
                   "save also when the validation loss is the lowest so far, and keep that checkpoint, in addition to "
                   "those of --keep, until a lower one");
  flags.add(
      "resume", "auto|none|PATH", o.resume,
      "PATH: continue from a checkpoint, or from the newest one in a run's folder; auto: from the newest valid one "
      "in --out, or from the beginning if there is none");
}

void declare_guards(Flags& flags, GuardOptions& o, const MeshOptions& mesh) {
  flags.group("guards");
  flags.add("max-skipped", "K", o.max_skipped,
            "steps in a row whose loss or gradient is not finite, and which are skipped, that end the run", count);
  flags.add("spike-threshold", "Z", o.spike_threshold,
            "a loss more than Z robust standard deviations above the median of recent losses is a spike: the run goes "
            "back to the newest checkpoint and continues with later samples; 0: off",
            Range::at_least(0));
  const auto detects = [&o] { return o.spike_threshold > 0; };
  flags.add("spike-window", "N", o.spike_window, "recent losses that a loss is compared with, 5 or more");
  flags.only_with("spike-threshold", "above 0", detects);
  flags.add("spike-rollbacks", "N", o.spike_rollbacks, "rollbacks allowed in a run; the next spike ends it",
            count_or_none);
  flags.only_with("spike-threshold", "above 0", detects);
  flags.add("check-replicas", "N", o.check_replicas,
            "steps between comparisons of replicas of weights and optimizer state, which also precede each save; with "
            "--zero, shards without replicas are checked around every update; 0: never",
            count_or_none);
  flags.add_switch("check-state", o.check_state,
                   "--zero: check shards of the optimizer's moments around every update, too", true);
  flags.only_with("zero", "1, 2 or 3, as without it all ranks have copies of the moments, which are compared",
                  [&mesh] { return mesh.zero > 0; });
  flags.only_with("check-replicas", "above 0", [&o] { return o.check_replicas > 0; });
}

void declare_training(Flags& flags, TrainOptions& o) {
  declare_batch(flags, o.batch);
  declare_schedule(flags, o.schedule);
  declare_optimizer(flags, o.optimizer);
  declare_mesh(flags, o.mesh);
  declare_precision(flags, o.precision);
  declare_run(flags, o.run);
  declare_output(flags, o.run);
  declare_checkpoints(flags, o.run);
  declare_guards(flags, o.guards, o.mesh);
}

int TrainOptions::threads_per_rank() const {
  const int ranks_here = mesh.processes ? 1 : mesh.shape.ranks();
  return static_cast<int>(precision.threads.value_or(std::max(1, cores() / ranks_here)));
}

BatchSizes TrainOptions::batch_sizes() const { return infer_batch(batch, mesh.shape.size(Axis::dp)); }

int MeshOptions::stages() const {
  constexpr std::int64_t most = 1 << 20;
  const std::int64_t ranks = shape.size(Axis::pp), stages = ranks * pipeline::chunks_per_rank(pipeline);
  if (stages > most)
    fail(ExitCode::usage, "--pipeline",
         "pp={} x {} stages a rank = {} stages; expected at most {}; change --pipeline, or pp in --mesh", ranks,
         stages / ranks, stages, most);
  return static_cast<int>(stages);
}

pipeline::StagePlan MeshOptions::stage_plan(int blocks, const pipeline::StageCosts& costs) const {
  return stage_layers == "auto" ? pipeline::stage_plan(blocks, stages(), costs)
                                : pipeline::listed_stage_plan(stage_layers, blocks, stages());
}

nn::Recompute PrecisionOptions::recompute_plan() const {
  using Kind = nn::Recompute::Kind;
  if (recompute == "none") return {Kind::none, 1};
  if (recompute == "selective") return {Kind::selective, 1};
  if (recompute == "full") return {Kind::blocks, 1};
  int every = 0;
  if (recompute.starts_with("every:")) {
    const char *begin = recompute.data() + 6, *end = recompute.data() + recompute.size();
    const auto [stop, error] = std::from_chars(begin, end, every);
    if (error != std::errc() || stop != end) every = 0;
  }
  if (every < 1)
    fail(ExitCode::usage, "--recompute",
         "expected none, selective, full or every:K with K of 1 or more, got '{}'; change --recompute", recompute);
  return {Kind::blocks, every};
}

optim::LossScaler PrecisionOptions::make_scaler() const {
  if (dtype != DType::f16) {
    const optim::LossScaleConfig initial;
    if (loss_scale != "auto" || scaling.window != initial.window || scaling.hysteresis != initial.hysteresis)
      fail(ExitCode::usage, "--loss-scale",
           "--loss-scale and its window and hysteresis have no effect with --dtype {}, whose range is that of f32; "
           "expected --dtype f16; drop them or change --dtype",
           name(dtype));
    return {};
  }
  optim::LossScaleConfig config = scaling;
  config.dynamic = loss_scale == "auto" || loss_scale == "dynamic";
  if (!config.dynamic) {
    const char *begin = loss_scale.data(), *end = loss_scale.data() + loss_scale.size();
    const auto [stop, error] = std::from_chars(begin, end, config.initial);
    if (error != std::errc() || stop != end || !(config.initial > 0) || !std::isfinite(config.initial))
      fail(ExitCode::usage, "--loss-scale",
           "expected auto, dynamic or a number above 0, got '{}'; f16 needs a scale, as small gradients are 0 in it; "
           "change --loss-scale, or use --dtype bf16",
           loss_scale);
    const optim::LossScaleConfig initial;
    if (scaling.window != initial.window || scaling.hysteresis != initial.hysteresis)
      fail(ExitCode::usage, "--loss-scale",
           "--loss-scale-window and --loss-scale-hysteresis have no effect with --loss-scale {}, which is fixed; "
           "expected --loss-scale dynamic; drop them or change --loss-scale",
           loss_scale);
  }
  return optim::LossScaler(config);
}

std::int64_t ScheduleOptions::decay_begin() const {
  if (lr_schedule != optim::LrShape::wsd) return warmup_steps;
  return steps - decay_steps.value_or(std::max<std::int64_t>(steps / 10, 1));
}

std::int64_t ScheduleOptions::decay_end() const {
  return lr_schedule == optim::LrShape::wsd ? steps : decay_steps.value_or(steps);
}

void resolve(TrainOptions& o, int launcher_ranks) {
  // A configuration of an earlier version has "" for none.
  if (!o.run.chooses_folder()) o.run.out = o.run.out_choice == "none" ? "" : o.run.out_choice;
  o.mesh.processes = o.mesh.ranks == "mpi" || (o.mesh.ranks == "auto" && launcher_ranks > 0);
  if (o.mesh.ranks == "threads" && launcher_ranks > 1)
    fail(ExitCode::usage, "mesh",
         "--ranks threads under a launcher of {} processes would run the whole job {} times; expected --ranks mpi; "
         "drop --ranks, or the launcher",
         launcher_ranks, launcher_ranks);
  const int world = o.mesh.processes ? std::max(launcher_ranks, 1) : 0;
  o.mesh.shape = parse_mesh(o.mesh.axes, world);
  o.mesh.axes = to_string(o.mesh.shape);
  const BatchSizes sizes = infer_batch(o.batch, o.mesh.shape.size(Axis::dp));
  if (o.precision.tensor_device() == Device::cpu && o.precision.gemm == "auto") o.precision.gemm = gemm_names().front();
  // micro_batches stays unset, so that a saved configuration can be used on another mesh: it follows from the other
  // two.
  o.batch = {.micro_batch = sizes.micro_batch, .global_batch = sizes.global_batch, .micro_batches = std::nullopt};
}

}  // namespace trireme
