// The regular expressions of the patterns, in all ways in which published files write them.
#include "data/word_patterns.h"

#include <array>
#include <utility>

namespace trireme {

namespace {

// White space is written \s in all of them.
constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt2OfTiktoken =
    R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)";
#define TRIREME_LATER(digits)                                                                                       \
  R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)" digits R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+)" \
  R"((?!\S)|\s+)"
constexpr std::string_view kLlama3 = TRIREME_LATER(R"(\p{N}{1,3})"), kQwen2 = TRIREME_LATER(R"(\p{N})");
#undef TRIREME_LATER
constexpr std::string_view kCl100k =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+)"
    R"((?!\S)|\s)";
#define TRIREME_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define TRIREME_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define TRIREME_ENDING R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
constexpr std::string_view kO200k =
    R"([^\r\n\p{L}\p{N}]?)" TRIREME_UPPER "*" TRIREME_LOWER "+" TRIREME_ENDING R"(|[^\r\n\p{L}\p{N}]?)" TRIREME_UPPER
    "+" TRIREME_LOWER "*" TRIREME_ENDING R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
#undef TRIREME_UPPER
#undef TRIREME_LOWER
#undef TRIREME_ENDING

constexpr std::array<std::pair<std::string_view, WordPattern>, 6> kKnown = {{{kGpt2, WordPattern::gpt2},
                                                                             {kGpt2OfTiktoken, WordPattern::gpt2},
                                                                             {kLlama3, WordPattern::llama3},
                                                                             {kCl100k, WordPattern::cl100k},
                                                                             {kQwen2, WordPattern::qwen2},
                                                                             {kO200k, WordPattern::o200k}}};

}  // namespace

std::optional<WordPattern> known_pattern(std::string_view regular_expression) {
  for (const auto& [text, pattern] : kKnown)
    if (text == regular_expression) return pattern;
  return std::nullopt;
}

std::string_view regular_expression(WordPattern pattern) {
  for (const auto& [text, known] : kKnown)
    if (known == pattern) return text;
  return {};
}

}  // namespace trireme
