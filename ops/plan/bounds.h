// Bounds of the time and memory of a training step, for a search through thousands of settings: less than predict()
// finds (ops/plan/predict.h), at a small part of its cost.
//
// A stage of a pipeline is a row of blocks. What a block does depends on tp, cp, ep, the micro-batch and recomputation,
// and hardly on anything else. So a dry run of a stage of one block is made for each combination of these, and the
// results are added up to the stages of any pipeline. Most blocks of a model are alike: those with equal traces and equal
// memory are run once.
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

/// What a step needs at least.
struct LowerBound {
  /// The schedule's actions in order: kernels, the collectives that a rank waits for, and messages as if each had its
  /// links for itself. Or ZeRO's exchanges in the background, if they take longer.
  double seconds = 0;
  double work = 0;  ///< seconds of these actions on the average rank, without any waiting for other stages
  std::int64_t memory =
      0;  ///< bytes: weights, optimizer, gradients, and what is kept from each forward to its backward
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

  /// As if the ZeRO stages 2 and 3, and splitting backwards, cost nothing: then settings that differ in these alone
  /// share their dry runs. Throws what the model throws.
  LowerBound quick(const TrainOptions& options) { return bound(options, false); }
  /// With what they cost.
  LowerBound close(const TrainOptions& options) { return bound(options, true); }

 private:
  /// What a block or a stage needs for one micro-batch.
  struct Needs {
    double forward = 0, backward = 0;                        // seconds
    double backward_weight = 0;                              // seconds of the second part of a split backward
    double exchanges = 0;                                    // seconds of ZeRO's exchanges in the background
    double gathers = 0;                                      // seconds of those of them that gather weights
    std::int64_t weights = 0, gradients = 0, optimizer = 0;  // bytes, not sharded
    std::int64_t activations = 0, kept = 0;                  // bytes: at the peak, and from forward to backward
    std::int64_t deferred = 0;                               // bytes that a split backward keeps for its second part
    std::int64_t output = 0;                                 // bytes of a message to the next stage
    void add(const Needs& next);                             // appends a block to a stage
  };
  /// Which blocks are alike.
  struct Kinds {
    std::once_flag once;
    std::vector<std::size_t> of_block, first;                // a kind for each block; a block for each kind
    std::int64_t weights = 0, gradients = 0, optimizer = 0;  // bytes that the blocks have twice, as tied embeddings
  };
  struct Blocks {
    std::once_flag once;
    std::vector<Needs> kinds;
    /// For each kind, what the data-parallel ranks exchange in the background in two micro-batches, and in one.
    std::vector<std::array<std::vector<Trace::Transfer>, 2>> exchanges;
    int data = 1;  // data-parallel ranks of these dry runs
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
  double exchange_seconds(const Trace::Transfer& transfer, int of_ranks, const MeshOptions& mesh) const;
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
