// From options to a GPT, and what memory it will need.
// Read next: examples/train_gpt.cpp, which puts it into a Trainer.
#pragma once

#include <memory>
#include <string>

#include "models/gpt.h"
#include "train/options.h"

namespace trireme {

/// This rank's part of the GPT that the options describe.
std::unique_ptr<Gpt> make_gpt(const TrainOptions& options, std::shared_ptr<const DeviceMesh> mesh);

/// Bytes per rank this run will need, by category, as one line for the start table; the convention is in the line
/// itself.
std::string predicted_memory(const TrainOptions& options, const GptConfig& config, const nn::ParameterList& parameters,
                             int live_activations);

/// What weights, gradients and optimizer state of the ranks in this process are estimated to need, as half a sentence.
std::string memory_estimate(const TrainOptions& options);
/// Throws ExitCode::usage when weights, gradients and optimizer state of the ranks in this process need more memory
/// than the machine has: from arithmetic, before a minute is spent on making them.
void require_memory(const TrainOptions& options);

}  // namespace trireme
