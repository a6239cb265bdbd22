// The step of a training run on a machine that is not here: the traces of one pipeline of the mesh, simulated.
// Read next: ops/plan/predict.cpp, ops/plan/simulate.h, ops/plan/search.h.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ops/plan/simulate.h"
#include "train/options/options.h"
#include "train/step/rank_memory.h"

namespace trireme::plan {

struct Prediction {
  double seconds = 0;           ///< of a step
  double flops = 0;             ///< of all ranks' products and attention in it, those of recomputation too
  std::vector<RankTime> ranks;  ///< of each pipeline rank with the other coordinates 0
};

/// Many micro-batches are extrapolated: with enough of them each takes the same time. Throws what the model throws.
Prediction predict(const TrainOptions& options, const DryProgram& program, const MachineModel& machine);

/// What the slowest rank does in a step, in seconds, the largest part first: products, attention, the optimizer, other
/// kernels; by axis, exchanges that are not hidden ("pp" is the bubble); and waiting for a core, if ranks share cores.
std::vector<std::pair<std::string, double>> parts(const Prediction& prediction);

/// The most memory of a pipeline rank.
RankMemory largest_memory(const TrainOptions& options, const DryProgram& program);

}  // namespace trireme::plan
