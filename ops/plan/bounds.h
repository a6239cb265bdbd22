// Bounds of the time and memory of a training step, for a search through thousands of settings: less than predict()
// finds (ops/plan/predict.h), at a small part of its cost.
//
// A stage of a pipeline is a row of blocks. So dry runs of stages of one block each tell what a stage of any number of
// them needs, for every pipeline, schedule, ZeRO stage and number of data-parallel ranks; only tp, cp, ep, the
// micro-batch and recomputation change what a block does. Most blocks of a model are alike: those whose traces and
// memory are equal are run once.
// Read next: ops/plan/bounds.cpp, ops/plan/search.h.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "ops/plan/predict.h"

namespace trireme::plan {

/// Of the schedule's actions, each as long as the kernels and collectives that a rank runs and waits for in it, while
/// messages and what is hidden take no time; or of ZeRO's exchanges, if these take longer. And of what is kept from each
/// forward to its backward.
struct LowerBound {
  double seconds = 0;
  double work = 0;          ///< of `seconds`: with nothing to wait for, and the same on all ranks
  std::int64_t memory = 0;  ///< bytes
};

/// Bytes that the largest rank needs at least: a mean share of the weights, and of what is not sharded with them. Costs
/// nothing.
std::int64_t least_memory(const TrainOptions& options, const ModelFacts& model);

/// The bounds of one program. Thread-safe.
class Bounds {
 public:
  /// `model`: that of `program`.
  Bounds(const DryProgram& program, const ModelFacts& model, const MachineModel& machine)
      : program_(program), model_(model), machine_(machine) {}

  /// Without what the ZeRO stages 2 and 3, and schedules that split backwards, add to a micro-batch: so settings that
  /// differ in these alone share dry runs. Throws what the model throws.
  LowerBound quick(const TrainOptions& options) { return bound(options, false); }
  /// With it.
  LowerBound close(const TrainOptions& options) { return bound(options, true); }

 private:
  /// What a block, or a stage, does with one micro-batch, and what it holds.
  struct Needs {
    double forward = 0, backward = 0, backward_weight = 0;   // seconds; the last two in one, if it is 0
    double exchanges = 0;                                    // of ZeRO, in the background
    std::int64_t weights = 0, gradients = 0, optimizer = 0;  // bytes, not sharded
    std::int64_t activations = 0, kept = 0;                  // bytes, at most and until backward
    std::int64_t deferred = 0;                               // bytes, from a split backward to its second part
    void add(const Needs& next);                             // the block behind
  };
  /// Blocks that are alike, with the same recomputation.
  struct Kinds {
    std::once_flag once;
    std::vector<std::size_t> of_block, first;                // the kind of each block; the first block of each kind
    std::int64_t weights = 0, gradients = 0, optimizer = 0;  // bytes of all blocks, beyond those of the whole model
  };
  struct Blocks {
    std::once_flag once;
    std::vector<Needs> kinds;
    /// Of each kind, what ranks with the same part of the model exchange in the background: in two micro-batches, and in
    /// one.
    std::vector<std::array<std::vector<Trace::Transfer>, 2>> exchanges;
    int data = 1;  // how many these ranks are
  };
  struct Plan {
    std::once_flag once;
    pipeline::StagePlan stages;
  };

  const pipeline::StagePlan& plan_of(const TrainOptions& options);
  const Kinds& kinds_of(const TrainOptions& options);
  const Blocks& blocks_of(const TrainOptions& options, const Kinds& kinds, bool close);
  std::vector<Needs> stages_of(const TrainOptions& options, bool close);
  LowerBound bound(const TrainOptions& options, bool close);
  LowerBound bound_of_schedule(const TrainOptions& options, const std::vector<Needs>& stages,
                               std::int64_t micro_batches) const;
  void add_block(Blocks& blocks, const TrainOptions& options, std::size_t block) const;
  double exchange_seconds(const Trace::Transfer& transfer, int of_ranks, const MeshShape& mesh) const;
  double seconds(const Trace& trace, std::size_t begin, std::size_t end) const;

  const DryProgram& program_;
  const ModelFacts& model_;
  const MachineModel& machine_;
  std::mutex mutex_;
  std::map<int, Plan> plans_;           // by the number of stages
  std::map<std::string, Kinds> kinds_;  // by recomputation
  /// By mesh, micro-batch, recomputation, ZeRO stage, schedule.
  std::map<std::tuple<std::string, std::int64_t, std::string, std::int64_t, std::string>, Blocks> blocks_;
};

}  // namespace trireme::plan
