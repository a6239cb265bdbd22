// A GPT for a comparison with one rank, and made-up text for it. Read next: train/parity/parity.h.
#pragma once

#include "models/gpt_config.h"
#include "train/parity/parity.h"

namespace trireme {

/// A global batch with masked targets, and with documents when attention stays within them.
ParityModel::Data gpt_parity_data(const TrainOptions& options, const GptConfig& config);

/// A GPT and such a batch.
ParityModel gpt_parity(const GptConfig& config);

}  // namespace trireme
