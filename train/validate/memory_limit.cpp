#include "train/validate/memory_limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <vector>

#include "core/control_groups.h"
#include "cuda/runtime/open.h"
#include "parallel/comm/launch_environment.h"
#include "train/program/units.h"

namespace trireme {
namespace {

/// A run is refused only if this share of it does not fit: ranks may keep fewer messages than was predicted, and a run
/// that works must not be refused.
constexpr double certain = 0.97;
/// A suggested run must fit with this many times its memory: freed blocks that no tensor fits into, and the program.
constexpr double with_room = 1.1;

/// Ranks whose tensors are in the memory in question.
int ranks_here(const TrainOptions& o) {
  const int all = o.mesh.shape.ranks();
  if (!o.mesh.processes) return all;
  if (o.precision.tensor_device() == Device::cuda) return 1;
  return std::clamp(launched_local_ranks(process_environment).value_or(1), 1, all);
}

/// Looks for options like those of a run that fit into memory.
class Search {
 public:
  Search(const TrainOptions& options, const MemoryOfRank& memory, double bytes)
      : options_(options), memory_(memory), bytes_(bytes) {}

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
      return with_room * memory_here(changed, memory_).all() <= bytes_;
    } catch (const Error&) { return false; }  // a number of micro-batches that the schedule does not take
  }

  /// The largest micro-batch, not above the given one, that divides the samples of a dp rank and fits.
  std::optional<std::int64_t> largest_micro_batch(const std::string& recompute, std::int64_t zero) const {
    TrainOptions changed = options_;
    if (!recompute.empty()) changed.precision.recompute = recompute;
    changed.mesh.zero = zero;
    const std::int64_t samples = given() * options_.batch_sizes().micro_batches;
    std::vector<std::int64_t> divisors;
    for (std::int64_t d = 1; d * d <= samples; ++d) {
      if (samples % d != 0) continue;
      for (const std::int64_t divisor : {d, samples / d})
        if (divisor <= given()) divisors.push_back(divisor);
    }
    std::sort(divisors.begin(), divisors.end());
    // If a schedule refuses some numbers of micro-batches, what is found fits, and may not be the largest.
    const auto too_large = std::partition_point(divisors.begin(), divisors.end(),
                                                [&](std::int64_t micro_batch) { return fits(changed, micro_batch); });
    const std::int64_t largest = too_large == divisors.begin() ? 0 : *std::prev(too_large);
    return largest > 0 ? std::optional(largest) : std::nullopt;
  }

  const TrainOptions& options_;
  const MemoryOfRank& memory_;
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

MachineMemory memory_here(const TrainOptions& o, const MemoryOfRank& memory) {
  const int stages = o.mesh.shape.size(Axis::pp), ranks_of_stage = o.mesh.shape.ranks() / stages;
  MachineMemory all;
  for (int stage = 0; stage < stages; ++stage) {
    const RankMemory rank = memory(o, stage * ranks_of_stage);
    const auto of = [&](MemoryCategory category) { return static_cast<double>(rank.of(category)); };
    const double state = of(MemoryCategory::parameters) + of(MemoryCategory::gradients) + of(MemoryCategory::optimizer);
    all.state += state;
    all.rest += static_cast<double>(rank.peak) - state;
  }
  const double here = static_cast<double>(ranks_here(o)) / stages;
  return {.state = all.state * here, .rest = all.rest * here};
}

void require_memory(const TrainOptions& o, const MachineMemory& need, const MemoryOfRank& memory,
                    const UsableMemory& usable) {
  const double least = certain * need.all();
  if (least <= usable.bytes) return;
  const std::string found = Search(o, memory, usable.bytes).found();
  const int ranks = ranks_here(o);
  const std::string whose = ranks > 1 ? fmt::format(" of {} ranks", ranks) : o.mesh.processes ? " of this rank" : "";
  const double times = std::ceil(least / usable.bytes);
  const std::string of_activations =
      need.rest > 0 ? fmt::format(", and activations of micro-batch {} with --recompute {} need {}",
                                  o.batch_sizes().micro_batch, o.precision.recompute, format_bytes(need.rest))
                    : "";
  fail(
      ExitCode::usage, "memory", "weights, gradients and optimizer state{} need {}{}; {} {}; expected less; {}", whose,
      format_bytes(need.state), of_activations, usable.text, format_bytes(usable.bytes),
      found.empty()
          ? fmt::format("make the model or --context smaller, shard more with --zero, or use at least {:.0f} times the "
                        "memory: more machines, with tp, pp or dp with --zero 3 in --mesh",
                        times)
          : fmt::format("this fits: {}; or use at least {:.0f} times the memory: more machines, with tp, pp or cp in "
                        "--mesh",
                        found, times));
}

std::string memory_clause(const TrainOptions& o, const MachineMemory& need) {
  const int ranks = o.mesh.processes ? 1 : o.mesh.shape.ranks();
  return fmt::format("weights, gradients and optimizer state were estimated at {} for the {} rank{} of this process",
                     format_bytes(need.state * ranks / ranks_here(o)), ranks, ranks == 1 ? "" : "s");
}

}  // namespace trireme
