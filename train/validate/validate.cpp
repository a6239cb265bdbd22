#include "train/validate/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "core/io.h"
#include "core/kernels.h"
#include "core/nearest.h"
#include "cuda/runtime/open.h"
#include "cuda/selection.h"
#include "train/options/optimizer_kinds.h"
#include "train/report/profiling.h"

namespace trireme {

std::string divisors(std::int64_t n) {
  std::vector<std::int64_t> found;
  for (std::int64_t d = 1; d <= n && d <= 4096; ++d)
    if (n % d == 0) found.push_back(d);
  std::string text;
  for (std::size_t i = 0; i < found.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == found.size() ? " or " : ", ", found[i]);
  return text;
}

namespace {

void validate_zero(const MeshOptions& o) {
  const int data = o.shape.size(Axis::data);
  if (o.dp_shard && data % *o.dp_shard != 0)
    fail(ExitCode::usage, "zero",
         "--dp-shard {} does not divide dp x cp = {}: {} / {} leaves {}; expected {}; change --dp-shard or --mesh",
         *o.dp_shard, data, data, *o.dp_shard, data % *o.dp_shard, divisors(data));
}

void validate_pipeline(const MeshOptions& o, std::int64_t blocks) {
  const int stages = o.stages(), ranks = o.shape.size(Axis::pp);  // throws for an unknown --pipeline
  if (blocks < stages)
    fail(
        ExitCode::usage, "--pipeline",
        "--layers {} are fewer than {} x {} = {} stages (pp={} ranks of --pipeline {}), and a stage holds at least one "
        "layer; expected at most {} stages; change --layers, --pipeline, or pp in --mesh",
        blocks, ranks, stages / ranks, stages, ranks, o.pipeline, blocks);
  static_cast<void>(o.stage_plan(static_cast<int>(blocks)));  // throws if --stage-layers does not fit
}

void validate_schedule(const ScheduleOptions& o) {
  if (o.min_lr && *o.min_lr > o.lr)
    fail(ExitCode::usage, "schedule", "--min-lr {} is above --lr {}; expected at most {}; change --min-lr or --lr",
         *o.min_lr, o.lr, o.lr);
  if (o.warmup_lr && *o.warmup_lr > o.lr)
    fail(ExitCode::usage, "schedule",
         "--warmup-lr {} is above --lr {}, to which the rate rises; expected at most {}; change --warmup-lr or --lr",
         *o.warmup_lr, o.lr, o.lr);
  if (o.warmup_steps > o.steps)
    fail(ExitCode::usage, "schedule",
         "--warmup-steps {} is more than --steps {}; expected at most {}; change --warmup-steps or --steps",
         o.warmup_steps, o.steps, o.steps);
  if (o.lr_schedule == optim::LrShape::wsd) {
    const std::int64_t decay = o.decay_end() - o.decay_begin();
    if (o.warmup_steps + decay > o.steps)
      fail(ExitCode::usage, "schedule",
           "--warmup-steps {} + --decay-steps {} = {} is more than --steps {}; with wsd the decay fills the last "
           "steps; change --decay-steps, --warmup-steps or --steps",
           o.warmup_steps, decay, o.warmup_steps + decay, o.steps);
  } else if (o.decay_steps && *o.decay_steps < o.warmup_steps) {
    fail(ExitCode::usage, "schedule",
         "--decay-steps {} comes before --warmup-steps {} are over; expected at least {}; change --decay-steps or "
         "--warmup-steps",
         *o.decay_steps, o.warmup_steps, o.warmup_steps);
  }
}

void validate_output(const RunOptions& o) {
  const auto refuse_both = [](const char* first, const char* second, const char* why) {
    fail(ExitCode::usage, "output", "--{} with --{}: {}; expected one of them; drop --{} or --{}", first, second, why,
         first, second);
  };
  if (o.quiet && o.verbose) refuse_both("quiet", "verbose", "one asks for less output, the other for more");
  if (o.quiet && o.dry_run) refuse_both("quiet", "dry-run", "nothing would be printed");
  if (o.json && o.quiet) refuse_both("json", "quiet", "with --json all events are printed");
  if (o.json && o.verbose) refuse_both("json", "verbose", "with --json all details are printed");
}

/// Without this check, a mistyped word would be looked up as a folder, only after an error about --out.
void validate_resume(const std::string& resume) {
  if (resume == "auto" || resume == "none") return;
  const char* expected = "expected auto, none, or the path of what an earlier run saved";
  std::error_code unknown;  // other failures are reported where the path is opened
  const std::filesystem::file_status status = std::filesystem::status(resume, unknown);
  if (std::filesystem::is_regular_file(status))
    fail(ExitCode::usage, "resume",
         "--resume {} is a file; {}: a run's folder, its checkpoints, or one of them; change --resume", resume,
         expected);
  if (status.type() != std::filesystem::file_type::not_found) return;
  constexpr int typos = 2;
  const std::string word = nearest(resume.substr(0, 8), {"auto", "none"});
  const bool close = edit_distance(resume.substr(0, 8), word) <= typos;
  fail(ExitCode::usage, "resume", "--resume {}: there is no such file or folder; {}; {}{}",
       resume.empty() ? "''" : resume, expected, close ? "the nearest is " : "change --resume", close ? word : "");
}

/// Checkpoints are saved in --out.
void validate_checkpoints(const RunOptions& o) {
  if (o.resume == "auto" && o.out.empty())
    fail(
        ExitCode::usage, "checkpoint",
        "--resume auto continues the run in the folder of --out, and --out is {}; expected --out DIR; give it, or drop "
        "--resume auto",
        o.out_choice);
  if (o.keeps_files()) return;
  const auto refuse = [](bool given, const char* flag) {
    if (given)
      fail(ExitCode::usage, "checkpoint",
           "{} has no effect with --out none, as checkpoints are in that folder; expected --out DIR or auto; change "
           "--out or drop it",
           flag);
  };
  refuse(o.checkpoint_every > 0, "--checkpoint-every");
  refuse(o.checkpoint_minutes > 0, "--checkpoint-minutes");
  refuse(o.keep.has_value(), "--keep");
}

void validate_recompute(const PrecisionOptions& o, std::int64_t blocks) {
  const nn::Recompute plan = o.recompute_plan();  // throws for an invalid --recompute
  if (plan.every > blocks)
    fail(ExitCode::usage, "--recompute",
         "every:{} of {} layers recomputes no block; expected at most every:{}; change --recompute", plan.every, blocks,
         blocks);
}

/// --profile may replace only an older trace: not the text, a configuration, or files of a run.
void require_own_file(const RunOptions& run) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (!run.out.empty()) {
    const auto place = [&](const std::string& name) { return fs::weakly_canonical(fs::absolute(name), ignored); };
    const fs::path way = place(run.profile).lexically_relative(place(run.out));
    if (!way.empty() && *way.begin() != "..")
      fail(ExitCode::usage, "profile",
           "--profile {} is in the folder of --out, whose files are the run's; expected a name outside {}; change "
           "--profile",
           run.profile, run.out);
  }
  require_own_kind("--profile", run.profile, {"a trace", Profiling::trace_beginning});
}

/// Refuses a --profile that would have nothing to record, or no place to write to, at the end of a run.
void validate_profile(const RunOptions& run, std::int64_t steps) {
  if (run.profile.empty()) {
    if (run.profile_steps != RunOptions().profile_steps)
      fail(ExitCode::usage, "profile",
           "--profile-steps has no effect without --profile, the file to write; expected --profile FILE; give "
           "--profile or drop --profile-steps");
    return;
  }
  const std::filesystem::path folder = std::filesystem::path(run.profile).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder))
    fail(ExitCode::usage, "profile", "--profile {}: there is no folder {}; make it, or change --profile", run.profile,
         folder.string());
  if (std::filesystem::exists(run.profile) && !std::filesystem::is_regular_file(run.profile))
    fail(ExitCode::usage, "profile", "--profile {} is a {}; expected the name of a file; change --profile", run.profile,
         std::filesystem::is_directory(run.profile) ? "folder" : "device, a pipe or a socket");
  require_own_file(run);
  if (steps <= Profiling::warm_up)
    fail(
        ExitCode::usage, "profile",
        "--profile records steps after the first {}, and --steps is {}; expected more; raise --steps or drop --profile",
        Profiling::warm_up, steps);
}

/// Also checks that there is a checkpoint to go back to after a spike.
void validate_guards(const TrainOptions& o) {
  // Not a range of the flag: its message could not explain what 0 means.
  constexpr std::int64_t least = 5, most = 1 << 20;
  if (o.guards.spike_window < least || o.guards.spike_window > most)
    fail(ExitCode::usage, "guards",
         "--spike-window {}: a loss is compared with the median of this many losses; expected {} to {}; change "
         "--spike-window, or turn the detector off with --spike-threshold 0",
         o.guards.spike_window, least, most);
  if (o.guards.spike_threshold == 0) return;
  if (!o.run.keeps_files() || (o.run.checkpoint_every == 0 && o.run.checkpoint_minutes == 0))
    fail(ExitCode::usage, "guards",
         "--spike-threshold {} goes back to a checkpoint, and this run saves none before its end; expected --out DIR "
         "and --checkpoint-every or --checkpoint-minutes; give them, or drop --spike-threshold",
         o.guards.spike_threshold);
}

constexpr std::int64_t most_thread_ranks = 1024, most_threads = 4096;

/// Each rank, and each of its threads, is a thread of this process.
void validate_threads(const TrainOptions& o) {
  if (o.mesh.processes) return;
  const std::int64_t ranks = o.mesh.shape.ranks(), threads = o.precision.threads.value_or(1);
  if (ranks > most_thread_ranks)
    fail(
        ExitCode::usage, "mesh",
        "{} are {} ranks; expected at most {} as threads of one process; change --mesh, or start processes with mpirun",
        to_string(o.mesh.shape), ranks, most_thread_ranks);
  if (ranks * threads > most_threads)
    fail(ExitCode::usage, "threads",
         "--threads {} x {} ranks = {} threads; expected at most {}; change --threads or --mesh", threads, ranks,
         ranks * threads, most_threads);
}

void validate_collectives(const TrainOptions& options) {
  const MeshOptions& o = options.mesh;
  if (!o.links.empty() && o.processes)
    fail(ExitCode::usage, "links",
         "--links is for ranks that are threads, and these are processes, whose links are real; drop it, or start "
         "without a launcher");
  for (const Axis axis : {Axis::dp, Axis::tp, Axis::pp, Axis::cp})
    if (const int ranks = o.shape.size(axis); o.collectives == comm::Algorithm::halving && (ranks & (ranks - 1)) != 0)
      fail(ExitCode::usage, "collectives",
           "halving needs groups of 1, 2, 4, ... ranks, got {}={}; expected powers of two in --mesh, or --collectives "
           "ring",
           name(axis), ranks);
  if (o.collectives == comm::Algorithm::hierarchical && o.links.empty())
    fail(ExitCode::usage, "collectives",
         "hierarchical needs nodes, which the file of --links names; expected --links FILE, or --collectives ring");
}

void validate_reduction(const MeshOptions& o) {
  if (o.processes || o.reduction != SumOrder::any || o.collectives != comm::Algorithm::exact) return;
  fail(ExitCode::usage, "reduction",
       "--reduction fast lets NCCL or MPI add, and ranks that are threads use neither; expected auto or exact, or a "
       "launcher; change or drop --reduction, or start processes with mpirun");
}

/// --gemm and --attention must name implementations of the device in use. On a GPU, they choose only 16-bit kernels.
void validate_implementations(const PrecisionOptions& o) {
  const bool gpu = o.tensor_device() == Device::cuda;
  const auto check = [&](const char* flag, const std::string& chosen, std::vector<std::string_view> names) {
    if (chosen == "auto") return;
    if (names.empty() || names.front() != "auto") names.insert(names.begin(), "auto");
    if (std::find(names.begin(), names.end(), chosen) == names.end())
      fail(ExitCode::usage, flag, "--{} {} is not for --device {}; expected {}; change --{} or --device", flag, chosen,
           o.device, fmt::join(names, ", "), flag);
    if (gpu && o.dtype == DType::f32 && chosen != "trireme")
      fail(ExitCode::usage, flag,
           "--{} {} is for bf16 and f16, and --dtype is f32, which has one implementation; expected --{} auto or "
           "trireme; change --{} or --dtype",
           flag, chosen, flag, flag);
  };
  check("gemm", o.gemm, gpu ? cuda::gemm_names() : gemm_names());
  check("attention", o.attention, gpu ? cuda::attention_names() : cpu_attentions());
}

void validate_packed(const TrainOptions& options) {
  const PrecisionOptions& o = options.precision;
  if (!o.keep_packed) return;
  const auto refuse = [](const std::string& has, const std::string& expected) {
    fail(ExitCode::usage, "keep-packed", "--keep-packed on with {}; expected {}; change it, or drop --keep-packed", has,
         expected);
  };
  if (o.tensor_device() != Device::cpu) refuse("--device " + o.device, "--device cpu, whose products pack weights");
  if (o.gemm != "auto" && o.gemm != "trireme") refuse("--gemm " + o.gemm, "--gemm trireme, which packs weights itself");
  if (options.mesh.zero == 3) refuse("--zero 3", "at most 2: with 3, weights are there only while they are used");
  if (options.batch_sizes().micro_batches == 1)
    refuse("one micro-batch in a step", "several, over which packed weights are kept: --micro-batches 2 or more");
}

void validate_expert_ranks(const MeshShape& mesh, bool experts) {
  if (mesh.size(Axis::ep) > 1 && !experts)
    fail(ExitCode::usage, "--mesh", "ep={} divides experts over ranks, and this model has none; leave ep out of --mesh",
         mesh.size(Axis::ep));
}

void validate_optimizer(const OptimizerOptions& o, const PrecisionOptions& precision) {
  static_cast<void>(optim::ParameterFactors("--lr-factor", o.lr_factor));  // throws for an invalid one
  static_cast<void>(optim::ParameterFactors("--decay-factor", o.decay_factor));
  kind_of(o).check(o, precision.tensor_device());
}

}  // namespace

void validate_device(const std::string& device) {
  if (device == name(Device::cuda)) cuda::require_device();  // never fall back to the CPU
}

void require_whole_sequences(const MeshOptions& o, const std::string& why) {
  const int cp = o.shape.size(Axis::cp), tp = o.shape.size(Axis::tp);
  if (cp > 1)
    fail(ExitCode::usage, "mesh",
         "cp={} cuts sequences, and this model needs them whole: {}; expected cp=1; change --mesh", cp, why);
  if (o.parallelism().sequence)
    fail(ExitCode::usage, "mesh",
         "sequence parallelism cuts sequences over tp={}, and this model needs them whole: {}; expected "
         "--sequence-parallel off; change it",
         tp, why);
}

void validate_training(const TrainOptions& o, std::int64_t blocks, bool experts) {
  validate_device(o.precision.device);
  // First, so that a flag without effect is reported as such and not for its value.
  refuse_unused<TrainOptions, declare_training>(o);
  validate_implementations(o.precision);
  validate_threads(o);
  validate_reduction(o.mesh);
  validate_collectives(o);
  validate_expert_ranks(o.mesh.shape, experts);
  validate_zero(o.mesh);
  validate_packed(o);
  validate_pipeline(o.mesh, blocks);
  validate_schedule(o.schedule);
  validate_optimizer(o.optimizer, o.precision);
  validate_profile(o.run, o.schedule.steps);
  validate_output(o.run);
  validate_checkpoints(o.run);
  validate_resume(o.run.resume);
  validate_guards(o);
  validate_recompute(o.precision, blocks);
  o.precision.make_scaler();  // throws for an invalid --loss-scale
}

}  // namespace trireme
