// UsageTexts: what a model needs, besides its weights and its tokenizer, to be used as it was meant: the chat template,
// the tokens that end a text, and its full context. They come from a folder of Hugging Face's, a GGUF file or
// --chat-template, are stored in each checkpoint, and go out with every export.
// Read next: train/gpt/gpt_source.h, data/chat/chat_template.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "data/tokenizer.h"

namespace trireme {

struct UsageTexts {
  std::string chat_template = {};                          ///< empty: none
  std::map<std::string, std::string> special_tokens = {};  ///< of the template: bos_token, eos_token, ..
  std::vector<std::int32_t> end_tokens = {};               ///< empty: the tokenizer's end-of-text token
  std::int64_t context = 0;  ///< of the model with which training began, if that is longer; 0: not known

  std::string base = {};  ///< the model with which training began: the path of --init-from; empty: none

  /// A JSON object for RunIdentity::usage.
  std::string to_json() const;
  /// Empty text: nothing is known. Throws ExitCode::data, naming `path`, if it is malformed.
  static UsageTexts parse(const std::string& text, const std::filesystem::path& path);
  bool operator==(const UsageTexts&) const = default;
};

/// Adds the special token `text`, which ends a turn, to the tokens that end a text. Does nothing if the tokenizer has
/// no such token.
void add_end(UsageTexts& usage, const Tokenizer& tokenizer, const std::string& text);

}  // namespace trireme
