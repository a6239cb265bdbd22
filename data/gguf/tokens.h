// What the reading and the writing of tokenizers in GGUF files share. Only for the parts of data/gguf/tokenizer.h.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/scored_tokens.h"
#include "data/word_patterns.h"

namespace trireme::gguf_tokens {

using namespace scored_tokens;

/// The names of patterns in llama.cpp; the first of a pattern is the one that is written.
struct NamedPattern {
  const char* name;
  WordPattern pattern;
  bool ignores_merges, composes;  ///< whether words that are tokens are kept, and whether text becomes NFC first
};
inline constexpr std::array<NamedPattern, 6> named_patterns = {{{"gpt-2", WordPattern::gpt2, false, false},
                                                                {"llama-bpe", WordPattern::llama3, true, false},
                                                                {"llama3", WordPattern::llama3, true, false},
                                                                {"llama-v3", WordPattern::llama3, true, false},
                                                                {"qwen2", WordPattern::qwen2, false, true},
                                                                {"gpt-4o", WordPattern::o200k, false, false}}};

/// Keys of the tokens that end a text, a turn and a message: llama.cpp stops at each of them.
inline constexpr std::array<const char*, 3> end_token_keys = {
    "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};

}  // namespace trireme::gguf_tokens
