// Which GPTs are impossible, by themselves or on a mesh. Read next: train/gpt/validate_gpt.cpp.
#pragma once

#include "train/gpt/gpt_options.h"

namespace trireme {

/// Throws ExitCode::usage; `options` has been through resolve(). Everything: also what is no GPT's own.
void validate(const GptOptions& options);

/// The model against the mesh: for programs that have only these two.
void validate_model(const GptConfig& model, const MeshShape& mesh);

/// A model, which has been through validate_model or was saved, against what attention on the device takes.
void validate_heads(const GptConfig& model, Device device);

}  // namespace trireme
