// From options to objects: the few translations every training program needs.
// Read next: examples/train_gpt.cpp, which puts them together.
#pragma once

#include <cstdint>
#include <memory>

#include "optim/lr_schedule.h"
#include "optim/optimizer.h"
#include "train/options.h"
#include "train/report.h"

namespace trireme {

std::unique_ptr<optim::Optimizer> make_optimizer(const OptimizerOptions& options, const optim::ShardList& shards);
optim::LrSchedule make_lr_schedule(const ScheduleOptions& options);

/// Bytes per rank this run will need, by category, as one line for the start table; the convention is in the line
/// itself.
std::string predicted_memory(const TrainOptions& options, const GptConfig& config, const nn::ParameterList& parameters,
                             int live_activations);

/// What weights, gradients and optimizer state of the ranks in this process are estimated to need, as half a sentence.
std::string memory_estimate(const TrainOptions& options);
/// Throws ExitCode::usage when weights, gradients and optimizer state of the ranks in this process need more memory than
/// the machine has: from arithmetic, before a minute is spent on making them.
void require_memory(const TrainOptions& options);

}  // namespace trireme
