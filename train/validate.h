// Which combinations of options are impossible: refused before anything is read or started, with what was asked, what
// is possible and the flag to change. What one flag may be by itself stands with its declaration in
// train/options.cpp.
// Read next: train/validate.cpp.
#pragma once

#include "train/options.h"

namespace trireme {

/// Throws ExitCode::usage; `options` has been through resolve().
void validate(const TrainOptions& options);

/// --device by itself: for programs that take no other of these options.
void validate_device(const std::string& device);

/// The model against the mesh: for programs that have only these two.
void validate_model(const GptConfig& model, const MeshShape& mesh);

/// A model, which has been through validate_model or was saved, against what attention on the device takes.
void validate_heads(const GptConfig& model, Device device);

}  // namespace trireme
