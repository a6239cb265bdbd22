// Files of ranks of OpenAI's library `tiktoken` (*.tiktoken; also tokenizer.model of Llama 3): a line for each token,
// its bytes in base64 and its rank, which is its id.
//
// Such a file holds neither the pattern that cuts a text into words nor the special tokens. The name of an encoding
// says both. Special tokens have their published ids if the file has the published number of ranks. A file with another
// number is not that of the encoding: --tokenizer refuses it. Tests make small ones, in which they follow the last rank.
// Includes nlohmann/json.hpp, which is slow to compile: include this from .cpp files only.
// Read next: data/pipeline_tokenizer.h.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "data/bpe_builder.h"
#include "data/pipeline_tokenizer.h"

namespace trireme {

/// Kind of such a tokenizer in our own files.
inline constexpr std::string_view tiktoken_kind = "tiktoken";

/// Names of the encodings, for messages.
std::string tiktoken_encodings();

/// Parses a file of ranks with the pattern and the special tokens of `encoding`. Throws ExitCode::usage for an unknown
/// name, ExitCode::data, with the line, for what is malformed, and, if it must be the `published` file, for another
/// number of ranks.
std::shared_ptr<const Tokenizer> parse_tiktoken(std::string_view text, std::string_view encoding,
                                                const std::filesystem::path& path, bool published = false);

/// The tokenizer with these tokens and the settings that its to_json() wrote.
std::shared_ptr<const Tokenizer> make_tiktoken(BpeBuilder& builder, const nlohmann::json& settings,
                                               const std::filesystem::path& path);

}  // namespace trireme
