// A GptConfig as a checkpoint stores it, JSON, and back.
// Read next: models/gpt_config.h.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "models/gpt_config.h"
#include "models/model.h"

namespace trireme {

/// The configuration as JSON, as a checkpoint stores it.
std::string gpt_text(const GptConfig& config, DType dtype);
/// As Model::settings(): fields that others imply come last, so that a changed --width is reported before --ffn-width.
std::vector<Model::Setting> gpt_settings(const std::string& text, const std::filesystem::path& path);

/// What read_gpt_text() returns.
struct StoredGpt {
  GptConfig config;
  DType dtype = DType::f32;
};
/// `elements`: the number of elements of weights and buffers that a file stores. Throws ExitCode::data, naming `path`,
/// if the text is malformed or describes a model with more elements than that. Otherwise made-up sizes would be found
/// only when memory runs out.
StoredGpt read_gpt_text(const std::string& text, const std::filesystem::path& path, double elements);

}  // namespace trireme
