// The index of a model whose weights are in several files: model.safetensors.index.json.
// Read next: models/hugging_face/folder.h.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

namespace trireme::hugging_face {

/// Which file holds each tensor. Throws ExitCode::data for what is malformed, and for a file name that is not a plain
/// one.
std::map<std::string, std::string> parse_index(std::string_view text, const std::filesystem::path& path);

}  // namespace trireme::hugging_face
