// A GPT for a comparison with one rank, and made-up text for it. Read next: train/parity.h.
#pragma once

#include "train/parity.h"

namespace trireme {

/// The GPT that the options describe. Its batch has masked targets, and documents when attention stays within them.
ParityModel gpt_parity();

}  // namespace trireme
