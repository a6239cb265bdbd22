// adapter_config.json, in which the library PEFT says what its adapters are.
// Read next: models/hugging_face/adapter.h.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "nn/lora_options.h"

namespace trireme::hugging_face {

/// Parses adapter_config.json. The targets are not set: the tensors beside it say which layers have adapters. With
/// use_rslora, which multiplies adapters by lora_alpha / sqrt(r) (Kalajdzievski 2023), alpha is the one that gives the
/// same factor as alpha / r. Throws ExitCode::data, with file and field, for another kind of adapter, for a field that
/// could change what adapters compute and is unknown or has a value that is not supported, and for what is malformed.
nn::LoraOptions parse_adapter_config(std::string_view text, const std::filesystem::path& path);

/// The text of adapter_config.json. `targets`: PEFT's names of all layers with adapters; `transposed`: their weights
/// are stored as [in, out]; `base`: the name or path of the model that they belong to, if it is known.
std::string adapter_config_text(const nn::LoraOptions& lora, const std::vector<std::string>& targets, bool transposed,
                                const std::string& base = {});

}  // namespace trireme::hugging_face
