// Refuses a run that cannot fit into memory before anything is allocated, and says what would fit.
// Read next: train/step/rank_memory.h, which predicts; core/control_groups.h.
#pragma once

#include <functional>
#include <string>

#include "train/options/options.h"
#include "train/step/rank_memory.h"

namespace trireme {

/// How much memory a rank may use, and what limits it.
struct UsableMemory {
  double bytes = 0;
  std::string text;  ///< for messages: "this machine has"
};
/// What the ranks of this machine may use: the memory of the GPU, or of the machine or its control group.
UsableMemory usable_memory(const TrainOptions& options);

/// The memory of a rank of a run with these options; throws if it cannot be known.
using MemoryOfRank = std::function<RankMemory(const TrainOptions& options, int rank)>;

/// Bytes of the ranks in one memory together.
struct MachineMemory {
  double state = 0;  ///< weights, gradients, the optimizer's state
  double rest = 0;   ///< activations, messages, workspaces
  double all() const { return state + rest; }
};
/// Of a run's ranks on this machine, each with the tensors of rank 0 of its pipeline stage. Throws what `memory` throws.
MachineMemory memory_here(const TrainOptions& options, const MemoryOfRank& memory);

/// Throws ExitCode::usage if `need` is more than `usable`, with the micro-batch, the recomputation, the ZeRO stage and
/// the number of machines that would fit.
void require_memory(const TrainOptions& options, const MachineMemory& need, const MemoryOfRank& memory,
                    const UsableMemory& usable);

/// A clause for error messages about memory: what weights, gradients and the optimizer's state of the ranks in this
/// process take.
std::string memory_clause(const TrainOptions& options, const MachineMemory& need);

}  // namespace trireme
