// The one place where a micro-batch is cut over cp: its rows are those of a dp rank, whole sequences; what the model gets
// is the tokens that this cp rank holds of them (nn/positions.h).
// Read next: train/trainer.cpp, train/evaluate.cpp.
#pragma once

#include "data/sampler.h"
#include "models/gpt.h"

namespace trireme {

/// Tells `model` which samples come next and where their documents begin, and returns this rank's tokens of them:
/// inputs and targets [B, T] -> [B, T/cp]. Targets may be undefined. T must be a multiple of 2 cp when cp > 1.
Batch enter_batch(Gpt& model, const Batch& batch);

}  // namespace trireme
