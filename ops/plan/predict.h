// Time and memory of a training step on a machine that is not here: the traces of one pipeline of the mesh, simulated.
// Read next: ops/plan/predict.cpp, ops/plan/simulate.h, ops/plan/search.h.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ops/plan/simulate.h"
#include "parallel/comm/trace.h"
#include "train/options/options.h"
#include "train/step/rank_memory.h"

namespace trireme::plan {

struct Prediction {
  double seconds = 0;              ///< of a step
  double flops = 0;                ///< of all ranks' products and attention in it, those of recomputation too
  std::vector<RankTime> ranks;     ///< of each pipeline rank with the other coordinates 0
  std::vector<RankMemory> memory;  ///< of the same

  const RankMemory& most_memory() const;  ///< of the rank that needs most
};

/// Many micro-batches are extrapolated: with enough of them each takes the same time. Throws what the model throws.
/// `threads`: that make the traces.
Prediction predict(const TrainOptions& options, const DryProgram& program, const MachineModel& machine,
                   int threads = 1);

/// A step of one pipeline in full: for pictures.
struct Recording {
  std::int64_t micro_batches = 0, of = 0;  ///< that are recorded, and that the step has
  std::vector<Trace> traces;               ///< of each pipeline rank with the other coordinates 0, with their memory
  Timeline timeline;                       ///< of the same
};
/// Of many micro-batches, the few that predict() extrapolates from.
Recording record(const TrainOptions& options, const DryProgram& program, const MachineModel& machine, int threads = 1);

/// What each pipeline rank needs for one micro-batch: enough for bounds of every schedule and ZeRO stage.
struct Outline {
  struct Rank {
    double seconds = 0;                                      ///< of kernels, and collectives that it waits for
    std::int64_t weights = 0, gradients = 0, optimizer = 0;  ///< bytes, not sharded
    std::int64_t activations = 0, kept = 0;  ///< of one micro-batch, and of each further one until backward
  };
  std::vector<Rank> ranks;
};
/// Ignores the schedule and the ZeRO stage of `options`. Costs a small part of predict().
Outline outline(const TrainOptions& options, const DryProgram& program, const MachineModel& machine);

/// Less than predict() finds for `options`, whose outline is `outline`: no rank works faster, the first micro-batch has
/// to reach a stage and the last one has to come back from it, and as many micro-batches as 1f1b needs are kept. Of
/// interleaved schedules, whose stages are others, it takes the mean of all ranks.
struct LowerBound {
  double seconds = 0;
  std::int64_t memory = 0;  ///< bytes
};
LowerBound lower_bound(const TrainOptions& options, const Outline& outline);

/// The time of the rank whose step is the longest.
const RankTime& slowest(const Prediction& prediction);

/// What the slowest rank does in a step, in seconds, the largest part first: products, attention, the optimizer, other
/// kernels; by axis, exchanges that are not hidden ("pp" is the bubble); and waiting for a core, if ranks share cores.
std::vector<std::pair<std::string, double>> parts(const Prediction& prediction);

/// The model, whatever the mesh.
struct ModelFacts {
  std::int64_t parameters = 0;  ///< with the padding of the vocabulary
  double flops = 0;             ///< of products and attention, forward and backward of a sample, without recomputation
  std::int64_t weights = 0, gradients = 0, optimizer = 0, offloaded = 0;  ///< bytes on one rank

  std::int64_t state() const { return weights + optimizer + offloaded; }  ///< what a checkpoint holds
};
ModelFacts model_facts(const TrainOptions& options, const DryProgram& program);

/// Bytes that the largest rank needs at least: a mean share of the weights, and of what is not sharded with them. Costs
/// nothing.
std::int64_t least_memory(const TrainOptions& options, const ModelFacts& model);

}  // namespace trireme::plan
