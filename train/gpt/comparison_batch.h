// Synthetic text, with which meshes are compared with one rank. Read next: check/parity/parity.h.
#pragma once

#include "models/gpt_config.h"
#include "train/loop/task.h"

namespace trireme {

/// A global batch with masked targets, and with documents if attention stays within documents. The same on every rank.
GlobalBatch comparison_batch(const TrainOptions& options, const GptConfig& config);

}  // namespace trireme
