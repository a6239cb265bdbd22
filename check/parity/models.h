// What is compared with one rank: the model of a task, or a GPT. Read next: check/parity/parity.h.
#pragma once

#include "check/parity/parity.h"
#include "models/gpt_config.h"
#include "train/loop/task.h"

namespace trireme {

/// The model of `task` and its data, which must have been prepared for a comparison. `task` must outlive the result.
ParityModel parity_model(const Task& task);

/// A GPT and synthetic text (train/gpt/comparison_batch.h).
ParityModel gpt_parity(const GptConfig& config);

/// For dry runs of a model whose comparison has these options: a sample of its data.
DryProgram dry_program(const ParityModel& model, const TrainOptions& options);

}  // namespace trireme
