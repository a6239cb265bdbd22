// Rotary positions in config.json: rope_theta with rope_scaling, or both in rope_parameters (transformers 5).
// Includes nlohmann/json.hpp, which is slow to compile: include this from .cpp files only.
// Read next: models/hugging_face/rope.cpp, nn/rotary.h.
#pragma once

#include "models/gpt_config.h"
#include "models/hugging_face/fields.h"

namespace trireme::hugging_face {

/// Sets rope_base, if the file says it, and rope_scaling. `window_base`, if given, receives the base of layers with a
/// window (Gemma 3). Throws ExitCode::data for a scaling that is unknown, or has a field that is.
void read_rope(Fields& fields, GptConfig& config, double* window_base = nullptr);
/// rope_theta, and rope_scaling or null: every version of transformers reads these.
void write_rope(const GptConfig& config, nlohmann::json& json);

}  // namespace trireme::hugging_face
