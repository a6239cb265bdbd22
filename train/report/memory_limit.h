// Refuses a run that cannot fit into memory before anything is allocated, and says what would fit.
// Read next: train/report/memory.h, the same figures for the table before training; core/machine_memory.h.
#pragma once

#include <functional>
#include <string>

#include "train/options/options.h"
#include "train/report/memory.h"

namespace trireme {

/// How much memory a rank may use, and what limits it.
struct UsableMemory {
  double bytes = 0;
  std::string text;  ///< for messages: "this machine has"
};
/// What the ranks of this machine may use: the memory of the GPU, or of the machine or its control group.
UsableMemory usable_memory(const TrainOptions& options);

/// Bytes of activations on rank 0 of a run with these options, with `live` micro-batches between forward and backward.
using ActivationBytes = std::function<double(const TrainOptions& options, int live)>;

/// Throws ExitCode::usage if weights, gradients, optimizer state and activations of the ranks on this machine need more
/// than `usable`, with the micro-batch, the recomputation, the ZeRO stage and the number of machines that would fit.
/// The estimate leaves out what is small, so a run that is not refused can still run out of memory.
void require_memory(const TrainOptions& options, const ParameterCounts& parameters, const ActivationBytes& activations,
                    const UsableMemory& usable);

/// The same for a model of which only the data is known: a micro-batch must fit. `sample`: bytes of one sample.
void require_batch_memory(const TrainOptions& options, double sample, const UsableMemory& usable);

}  // namespace trireme
