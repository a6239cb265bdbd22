// How much memory a run will need, by arithmetic: for the table before training, and to refuse at once what cannot fit.
// Read next: train/report/memory.cpp, parallel/zero/formula.h.
#pragma once

#include <cstdint>
#include <string>

#include "nn/parameter.h"
#include "train/options/options.h"

namespace trireme {

/// Bytes of this rank, by category, as one line for the table before training; the convention is in the line itself, which says so
/// when activations are not estimated.
/// `activations`, `workspace`: bytes; 0 where they are not estimated.
std::string predicted_memory(const TrainOptions& options, const nn::ParameterList& parameters, double activations,
                             double workspace = 0);

/// What weights, gradients and optimizer state of the ranks in this process are estimated to need, as half a sentence.
/// `parameters`: of the whole model.
std::string memory_estimate(const TrainOptions& options, std::int64_t parameters);
/// Throws ExitCode::usage when weights, gradients and optimizer state of the ranks in this process need more memory
/// than the machine has: from arithmetic, before a minute is spent on making them.
void require_memory(const TrainOptions& options, std::int64_t parameters);

}  // namespace trireme
