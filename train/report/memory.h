// Predicts the memory of a run for the table before training.
// Read next: train/report/memory_limit.h, which refuses what cannot fit; parallel/zero/formula.h.
#pragma once

#include <cstdint>
#include <string>

#include "parallel/parameters/parameter.h"
#include "train/options/options.h"

namespace trireme {

/// Bytes of this rank, by category, as one line for the table before training. The line says so if activations are not
/// estimated. `activations`, `workspace`: bytes; 0 if not estimated.
std::string predicted_memory(const TrainOptions& options, const ParameterList& parameters, double activations,
                             double workspace = 0);

/// The number of parameters of a whole model, and how many of them belong to experts, which ep cuts, and to matrices
/// between hidden layers, for which Muon keeps less state; 0: not known, and counted as the others. Frozen ones have
/// neither gradients nor optimizer state.
struct ParameterCounts {
  std::int64_t all = 0, experts = 0, hidden_matrices = 0, frozen = 0;
};

/// Bytes of weights, gradients and optimizer state of all ranks together.
double state_of_all_ranks(const TrainOptions& options, const ParameterCounts& parameters);

/// A clause for error messages: the estimated bytes of weights, gradients and optimizer state of the ranks in this
/// process.
std::string memory_estimate(const TrainOptions& options, const ParameterCounts& parameters);
}  // namespace trireme
