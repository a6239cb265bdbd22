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
  std::vector<RankMemory> memory;  ///< of the same; ranks that share a dry run (ops/plan/alike.h) have its memory

  const RankMemory& most_memory() const;  ///< of the rank that needs most
};

/// `options` with `count` micro-batches of the same size.
TrainOptions with_micro_batches(const TrainOptions& options, std::int64_t count);

/// Two numbers of micro-batches from which larger ones are extrapolated: a full pipeline, and one that is longer.
std::pair<std::int64_t, std::int64_t> few_micro_batches(const TrainOptions& options);

/// Many micro-batches are extrapolated: with enough of them each takes the same time. Throws what the model throws.
/// `threads`: that make the traces. `share`: whether stages that are alike share a dry run.
Prediction predict(const TrainOptions& options, const DryProgram& program, const MachineModel& machine, int threads = 1,
                   bool share = true);

/// A step of one pipeline, or of all ranks, in full: for pictures.
struct Recording {
  std::int64_t micro_batches = 0, of = 0;  ///< that are recorded, and that the step has
  std::vector<Trace> traces;  ///< of each pipeline rank with the other coordinates 0, or of every rank; with memory
  Timeline timeline;          ///< of the same
};
/// Of many micro-batches, the few that predict() extrapolates from.
Recording record(const TrainOptions& options, const DryProgram& program, const MachineModel& machine, int threads = 1);

/// The rank that computes most: the others wait for it.
const RankTime& busiest(const Prediction& prediction);

/// How the busiest rank spends a step, in seconds, the largest part first: products, attention, the optimizer, other
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

}  // namespace trireme::plan
