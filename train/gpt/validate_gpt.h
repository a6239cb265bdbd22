// Refuses impossible GPTs, and GPTs that the mesh cannot hold. Read next: train/gpt/validate_gpt.cpp.
#pragma once

#include "train/gpt/gpt_options.h"

namespace trireme {

/// Checks all options, including those that are not specific to a GPT. Throws ExitCode::usage. `options`: after
/// resolve().
void validate(const GptOptions& options);

/// Checks the model and its mesh only, for programs without other options.
void validate_model(const GptConfig& model, const MeshShape& mesh);

/// Checks that attention on the device supports the heads and scores of a model. The model was saved, or passed
/// validate_model().
void validate_heads(const GptConfig& model, Device device);

}  // namespace trireme
