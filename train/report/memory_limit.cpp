#include "train/report/memory_limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

#include "core/machine_memory.h"
#include "cuda/runtime/open.h"
#include "parallel/comm/launch_environment.h"
#include "parallel/pipeline/check.h"
#include "parallel/pipeline/schedules.h"
#include "train/program/units.h"

namespace trireme {
namespace {

/// A run is refused only if this share of its estimated activations does not fit. The estimate may be a little too
/// high, and a run that works must not be refused: tests/train/memory_limit_test.cpp compares both with real runs.
constexpr double certain = 0.9;
/// A suggested run must fit with this many times its estimated activations, because small tensors are not estimated.
constexpr double with_room = 1.15;

/// Most micro-batches alive on each rank of a pipeline. If they grow with the number of micro-batches, as with gpipe, a
/// short schedule tells how.
std::vector<double> live_micro_batches(const TrainOptions& o) {
  const int ranks = o.mesh.shape.size(Axis::pp);
  const std::int64_t all = o.batch_sizes().micro_batches;
  const std::int64_t enough = std::int64_t{4} * ranks * pipeline::chunks_per_rank(o.mesh.pipeline);
  const auto count = static_cast<int>(std::min(all, enough));
  const pipeline::ScheduleCosts costs = pipeline::check(pipeline::make_schedule(o.mesh.pipeline, ranks, count));
  std::vector<double> live;
  for (const int peak : costs.peak_live)
    live.push_back(peak >= count ? static_cast<double>(peak) * static_cast<double>(all) / count : peak);
  return live;
}

/// Ranks whose tensors are in the memory in question.
int ranks_here(const TrainOptions& o) {
  const int all = o.mesh.shape.ranks();
  if (!o.mesh.processes) return all;
  if (o.precision.tensor_device() == Device::cuda) return 1;
  return std::clamp(launched_local_ranks(process_environment).value_or(1), 1, all);
}

struct MemoryNeed {
  double state = 0, activations = 0;  // bytes
};

MemoryNeed need_of(const TrainOptions& o, const ParameterCounts& parameters, const ActivationBytes& activations) {
  const double here = static_cast<double>(ranks_here(o)) / o.mesh.shape.ranks();
  const std::vector<double> live = live_micro_batches(o);
  double of_pipeline = 0;  // of one rank of each stage
  for (const double count : live) of_pipeline += activations(o, static_cast<int>(std::min(count, 1e9)));
  const double pipelines = static_cast<double>(o.mesh.shape.ranks()) / static_cast<double>(live.size());
  return {.state = state_of_all_ranks(o, parameters) * here, .activations = of_pipeline * pipelines * here};
}

/// Looks for options like those of a run that fit into memory.
class Search {
 public:
  Search(const TrainOptions& options, const ParameterCounts& parameters, const ActivationBytes& activations,
         double bytes)
      : options_(options), parameters_(parameters), activations_(activations), bytes_(bytes) {}

  /// The options that fit, as a list for a message; empty if there are none.
  std::string found() const {
    std::vector<std::string> ways;
    const std::optional<std::int64_t> kept = largest_micro_batch("", options_.mesh.zero);
    if (kept) ways.push_back(batch_text(*kept));
    if (options_.precision.recompute != "full") {
      const std::optional<std::int64_t> recomputed = largest_micro_batch("full", options_.mesh.zero);
      if (recomputed && (!kept || *recomputed > *kept))
        ways.push_back((*recomputed == given() ? "" : batch_text(*recomputed) + " with ") + "--recompute full");
    }
    if (ways.empty() && options_.mesh.zero < 3 && options_.mesh.shape.size(Axis::data) > 1)
      if (const auto sharded = largest_micro_batch("full", 3))
        ways.push_back((*sharded == given() ? "" : batch_text(*sharded) + " with ") + "--recompute full and --zero 3");
    return fmt::format("{}", fmt::join(ways, ", or "));
  }

 private:
  std::int64_t given() const { return options_.batch_sizes().micro_batch; }

  /// The global batch stays the same, and so do the results.
  std::string batch_text(std::int64_t micro_batch) const {
    return fmt::format("--micro-batch {} --global-batch {}", micro_batch, options_.batch_sizes().global_batch);
  }

  bool fits(TrainOptions changed, std::int64_t micro_batch) const {
    changed.batch = {.micro_batch = micro_batch, .global_batch = options_.batch_sizes().global_batch};
    try {
      const MemoryNeed need = need_of(changed, parameters_, activations_);
      return need.state + with_room * need.activations <= bytes_;
    } catch (const Error&) { return false; }  // a number of micro-batches that the schedule does not take
  }

  /// The largest micro-batch, not above the given one, that divides the samples of a dp rank and fits.
  std::optional<std::int64_t> largest_micro_batch(const std::string& recompute, std::int64_t zero) const {
    TrainOptions changed = options_;
    if (!recompute.empty()) changed.precision.recompute = recompute;
    changed.mesh.zero = zero;
    const std::int64_t samples = given() * options_.batch_sizes().micro_batches;
    std::int64_t largest = 0;
    for (std::int64_t d = 1; d * d <= samples; ++d) {
      if (samples % d != 0) continue;
      for (const std::int64_t divisor : {d, samples / d})
        if (divisor > largest && divisor <= given() && fits(changed, divisor)) largest = divisor;
    }
    return largest > 0 ? std::optional(largest) : std::nullopt;
  }

  const TrainOptions& options_;
  const ParameterCounts& parameters_;
  const ActivationBytes& activations_;
  double bytes_;
};

}  // namespace

UsableMemory usable_memory(const TrainOptions& o) {
  if (o.precision.tensor_device() == Device::cuda)
    return {static_cast<double>(cuda::find_devices().devices.front().memory), "this GPU has"};
  const HostMemory host = host_memory();
  return {static_cast<double>(host.bytes),
          host.of_group ? "the control group of this process allows" : "this machine has"};
}

void require_memory(const TrainOptions& o, const ParameterCounts& parameters, const ActivationBytes& activations,
                    const UsableMemory& usable) {
  const MemoryNeed need = need_of(o, parameters, activations);
  const double least = need.state + certain * need.activations;
  if (least <= usable.bytes) return;
  const std::string found = Search(o, parameters, activations, usable.bytes).found();
  const int ranks = ranks_here(o);
  const std::string whose = ranks > 1 ? fmt::format(" of {} ranks", ranks) : o.mesh.processes ? " of this rank" : "";
  const std::string of_activations =
      need.activations > 0
          ? fmt::format(" and about {} for activations of micro-batch {} with --recompute {}",
                        format_bytes(need.activations), o.batch_sizes().micro_batch, o.precision.recompute)
          : "";
  fail(
      ExitCode::usage, "memory",
      "{} parameters need {} for weights, gradients and optimizer state{}{}, and {} {}; expected less; {}",
      parameters.all, format_bytes(need.state), of_activations, whose, usable.text, format_bytes(usable.bytes),
      found.empty()
          ? fmt::format("make the model or --context smaller, shard more with --zero, or use at least {:.0f} times the "
                        "memory: more machines, with tp, pp or dp with --zero 3 in --mesh",
                        std::ceil(least / usable.bytes))
          : fmt::format("this fits: {}; or use at least {:.0f} times the memory: more machines, with tp, pp or cp in "
                        "--mesh",
                        found, std::ceil(least / usable.bytes)));
}

void require_batch_memory(const TrainOptions& o, double sample, const UsableMemory& usable) {
  const std::int64_t micro_batch = o.batch_sizes().micro_batch;
  const double bytes = sample * static_cast<double>(micro_batch) * ranks_here(o);
  if (bytes <= usable.bytes) return;
  fail(ExitCode::usage, "memory",
       "--micro-batch {} x {} a sample = {} on each rank of this machine, without weights and activations, and {} {}; "
       "expected less; lower --micro-batch",
       micro_batch, format_bytes(sample), format_bytes(bytes / ranks_here(o)), usable.text, format_bytes(usable.bytes));
}

}  // namespace trireme
