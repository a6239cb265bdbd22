// The ids of a tokenizer's special tokens, for files that name them: config.json, GGUF.
// Read next: data/chat/chat_template.h, which reads the texts of such tokens.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "data/tokenizer.h"

namespace trireme {

/// The texts of special tokens by the names that tokenizer_config.json gives them: "bos_token", "pad_token", ..
using SpecialTokens = std::map<std::string, std::string>;

/// The id of the token with this text; nothing if the tokenizer does not read the text as one token.
std::optional<std::int32_t> special_id(const Tokenizer& tokenizer, const std::string& text);
/// The id of the token `name`; nothing if it has no text, or if the text is not one token of the tokenizer.
std::optional<std::int32_t> special_id(const Tokenizer& tokenizer, const SpecialTokens& tokens,
                                       const std::string& name);

}  // namespace trireme
