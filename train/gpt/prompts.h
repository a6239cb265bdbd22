// The prompts of a program: from its flags, or many from a file.
// Read next: train/gpt/generation_output.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat/chat_template.h"
#include "data/tokenizer.h"

namespace trireme {

/// What a text begins with. One of text and ids is empty.
struct Prompt {
  std::string text;
  std::vector<std::int32_t> ids = {};  ///< if given as ids
  std::string where = "--prompt";      ///< for messages: a flag, or a file and a line
};
/// A question of a file: the messages of a conversation.
struct ChatQuestion {
  std::vector<ChatMessage> messages;
  std::string where;  ///< for messages: the file and the line
};

/// The prompts in a file. If its name ends with .jsonl, each line is a JSON text, or an object with "prompt" (a text)
/// or "ids" (a list of token ids); else each line is a prompt. Blank lines are skipped. Throws ExitCode::data, naming
/// file and line, for anything else, and if there is no prompt.
std::vector<Prompt> parse_prompts(std::string_view text, const std::filesystem::path& path);

/// The questions in a file, each a conversation of its own. If the file's name ends with .jsonl, each line is a JSON text, which is a question, or an object in one of the forms of data/chat/dialogue_forms.h, of which
/// the answer at the end is left out; else each line is a question. Throws as parse_prompts(), and ExitCode::data if
/// nothing is left to answer.
std::vector<ChatQuestion> parse_chat_questions(std::string_view text, const std::filesystem::path& path);

/// "1,2,3" of --`flag` as ids. Throws ExitCode::usage.
std::vector<std::int32_t> parse_ids(std::string_view list, const std::string& flag);

/// The ids of a prompt. Throws ExitCode::usage, with its place, if the tokenizer has no id for a character, for an id
/// outside its vocabulary, and for a text that has no token.
std::vector<std::int32_t> prompt_ids(const Tokenizer& tokenizer, const Prompt& prompt);

}  // namespace trireme
