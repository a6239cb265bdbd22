// Tokenizers of characters as SentencePiece's and GGUF files hold them: tokens with a score each. Any two tokens side
// by side that make a token are merged, those of the highest score first. Here this becomes a tokenizer.json.
// Includes nlohmann/json.hpp, which is slow to compile: include this from .cpp files only.
// Read next: data/gguf/tokenizer.cpp, data/sentencepiece.cpp.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::scored_tokens {

inline constexpr std::string_view space_mark = "\xE2\x96\x81";  // U+2581

inline constexpr std::size_t longest_merges = std::size_t{24} << 20;

/// Of a token, as both numbers them.
enum TokenType : std::int32_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

/// A merge of two tokens, and what orders it.
struct ScoredMerge {
  float score;
  std::size_t left_size, right_size;
  std::int32_t left, right;
};

/// All pairs of tokens that make a token, the highest score first; of equal ones the longer left part first. Throws
/// ExitCode::data, naming `source`, if there are more than bpe_most_merges, or if their text has more than
/// longest_merges bytes: a token of n letters can be made in n - 1 ways.
std::vector<ScoredMerge> merges_of_scores(const std::vector<std::string>& tokens,
                                          const std::vector<std::int32_t>& types, const std::vector<float>& scores,
                                          const std::string& source);

/// The merges as they stand in a tokenizer.json, between the brackets.
std::string merges_json(const std::vector<std::string>& tokens, const std::vector<ScoredMerge>& merges);

/// Normalizer, decoder and the model's choices, with byte fallback.
nlohmann::json character_settings(bool space_in_front);
/// "model" without the vocabulary and the merges.
nlohmann::json model_settings(bool falls_back, bool ignores_merges);
/// A template that puts tokens in front of a text, and behind it.
nlohmann::json template_of(const std::vector<std::string>& tokens, std::optional<std::int32_t> front,
                           std::optional<std::int32_t> behind);
/// An entry of "added_tokens".
nlohmann::json added_token(std::size_t id, const std::string& content, bool special, bool normalized);

/// The text of a tokenizer.json; `merges` stands between the brackets.
std::string tokenizer_json(const nlohmann::json& settings, const std::vector<std::string>& tokens,
                           const std::string& merges);

}  // namespace trireme::scored_tokens
