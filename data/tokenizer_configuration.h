// What a folder of Hugging Face's layout says about its tokenizer beside the tokenizer's own file:
// tokenizer_config.json, and the older added_tokens.json.
//
// tokenizer.json has all tokens itself, but an edited folder may name more of them beside it. transformers adds those
// when it loads the folder, with ids that depend on the class of the tokenizer. Here such a folder is refused, because
// its texts would silently get other ids.
// Includes nlohmann/json.hpp, which is slow to compile: include this from .cpp files only.
// Read next: data/tokenizer_files.cpp, data/sentencepiece.h.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "data/added_tokens.h"
#include "data/tokenizer.h"

namespace trireme {

/// The object of FOLDER/tokenizer_config.json; empty if there is no such file. Throws ExitCode::data if it is
/// malformed.
nlohmann::json tokenizer_configuration(const std::filesystem::path& folder);

/// The field `key` of an object that stands in the file `path`; `otherwise` if it is not there. Throws ExitCode::data.
bool flag_of(const nlohmann::json& object, const char* key, bool otherwise, const std::filesystem::path& path);

/// The tokens of "added_tokens_decoder" in `configuration` and of FOLDER/added_tokens.json, in order of their ids.
/// Throws ExitCode::data, with file and entry.
std::vector<AddedToken> configured_tokens(const nlohmann::json& configuration, const std::filesystem::path& folder);

/// Throws ExitCode::data if the folder names a token whose text the tokenizer does not read as one token; the message
/// has the text and the field. Checked are configured_tokens(), the additional special tokens, bos_token and eos_token.
void require_configured_tokens(const Tokenizer& tokenizer, const std::filesystem::path& folder);

}  // namespace trireme
