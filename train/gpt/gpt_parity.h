// A GPT and synthetic text, for a comparison with one rank. Read next: train/parity/parity.h.
#pragma once

#include "models/gpt_config.h"
#include "train/parity/parity.h"

namespace trireme {

/// A global batch with masked targets, and with documents if attention stays within documents.
ParityModel::Data gpt_parity_data(const TrainOptions& options, const GptConfig& config);

/// A GPT and such a batch.
ParityModel gpt_parity(const GptConfig& config);

}  // namespace trireme
