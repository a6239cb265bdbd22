// config.json of a model in Hugging Face's layout, as a GptConfig, and back.
// Read next: models/hugging_face/architectures.h, models/hugging_face/folder.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "models/gpt_config.h"

namespace trireme::hugging_face {

/// What config.json says.
struct ModelConfig {
  std::string model_type;                ///< "llama"
  GptConfig gpt;                         ///< without dropout
  std::vector<std::int32_t> end_tokens;  ///< eos_token_id: generation ends before these
};

/// Parses config.json. Throws ExitCode::data, with file and field, for what is malformed, for an unknown architecture,
/// and for a field that could change what the model computes and is unknown or has a value that is not supported.
ModelConfig parse_config(std::string_view text, const std::filesystem::path& path);

/// The ids in eos_token_id, of config.json or generation_config.json: a number, a list or null. Nothing: it has no such
/// field. Throws ExitCode::data.
std::optional<std::vector<std::int32_t>> parse_end_tokens(std::string_view text, const std::filesystem::path& path);

/// The architecture that computes what a GPT of this configuration does: the value of model_type. Throws
/// ExitCode::usage, with the flags that have no counterpart in the nearest architecture, if there is none.
std::string model_type_of(const GptConfig& config);

/// Ids of special tokens in config.json.
struct TokenIds {
  std::optional<std::int32_t> begin = {}, padding = {};  ///< bos_token_id, pad_token_id
  std::vector<std::int32_t> ends = {};                   ///< eos_token_id: a number, a list, or null
};

/// The text of config.json for it. Throws as model_type_of().
std::string config_text(const GptConfig& config, DType dtype, const TokenIds& tokens);

}  // namespace trireme::hugging_face
