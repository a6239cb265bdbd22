// The memory of one rank of a training run, as a dry run finds it (core/dry_run.h): the rank's own Trainer makes two
// steps, without the other ranks and without the memory. So the prediction is that of the code that trains, for any
// model, mesh and schedule.
//
// Equal to a real run, byte by byte, but for messages under way (ranks that keep step are assumed) and for experts, of
// which all are chosen equally often. Not in it: what a save copies, what libraries and a GPU's kernels allocate, and
// the program itself. tests/parity/memory_test.cpp compares. Read next: train/validate/memory_limit.h.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "core/cores.h"
#include "core/memory.h"
#include "models/model.h"
#include "parallel/comm/dry_group.h"
#include "parallel/comm/trace.h"
#include "train/options/options.h"
#include "train/step/trainer.h"

namespace trireme {

/// Bytes of one rank's tensors, where its model is.
struct RankMemory {
  std::array<std::int64_t, memory_categories> at_peak{};  ///< by category, when most were in use; they add up to `peak`
  std::array<std::int64_t, memory_categories> peaks{};    ///< the most of each category, at its own time
  std::int64_t peak = 0;

  /// That of one category at the peak.
  std::int64_t of(MemoryCategory category) const { return at_peak[static_cast<std::size_t>(category)]; }
};

/// What the calling thread's rank has used on a device since the last reset_peaks(); and in host memory for optimizer
/// state that is offloaded, which is not part of `peak`.
RankMemory memory_used(Device device);

/// "45.2 MiB parameters + 45.2 MiB gradients + 224.1 MiB activations = 314.5 MiB".
std::string to_string(const RankMemory& memory);

/// What a dry run needs of a program.
struct DryProgram {
  std::function<std::unique_ptr<Model>(const TrainOptions& options, std::shared_ptr<const DeviceMesh> mesh)> model;
  std::map<std::string, Tensor, std::less<>> sample;  ///< a batch of one: [1, ..] each
};

/// Memory of rank `rank` of options.mesh. Large micro-batches, and large numbers of them, are extrapolated. Throws what
/// the model throws in a dry run, as one may that looks at what it computes.
RankMemory dry_run_memory(const TrainOptions& options, const DryProgram& program, int rank);

/// What rank `rank` does in some steps, of which the second is like all that follow; a mark ends each. Returns its
/// memory. `facts`: shared with the ranks whose traces are simulated together. `cores`: where it runs, if the trace
/// measures.
RankMemory dry_run_trace(const TrainOptions& options, const DryProgram& program, int rank, Trace& trace,
                         std::shared_ptr<DryFacts> facts, OwnCores::Share cores = {}, int steps = 2);

/// The blocks of each stage of the model, from a dry run that makes that of the first rank.
pipeline::StagePlan dry_run_plan(const TrainOptions& options, const DryProgram& program);

/// Micro-batches of `samples` copies of the program's sample, with ids from `first_id` on, as if each were another.
Trainer::NextBatch copies_of_sample(const DryProgram& program, std::int64_t samples, std::int64_t first_id);

/// What both do with their Trainer: `steps` steps.
void make_steps(Trainer& trainer, const Trainer::NextBatch& next_batch, int steps);

}  // namespace trireme
