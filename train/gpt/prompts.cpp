#include "train/gpt/prompts.h"

#include <charconv>
#include <limits>

#include "core/error.h"
#include "data/chat/dialogue_forms.h"
#include "data/json.h"
#include "data/json_lines.h"

namespace trireme {
namespace {

Prompt prompt_of(const nlohmann::json& value) {
  if (value.is_string()) return {value.get<std::string>()};
  if (value.is_object() && value.contains("ids")) {
    if (value.contains("prompt")) fail(ExitCode::data, "prompts", "there are 'prompt' and 'ids'; expected one of them");
    Prompt prompt;
    if (value["ids"].is_array())
      for (const auto& id : value["ids"])
        if (id.is_number_integer() && id >= 0 && id <= std::numeric_limits<std::int32_t>::max())
          prompt.ids.push_back(id.get<std::int32_t>());
    if (prompt.ids.empty() || prompt.ids.size() != value["ids"].size())
      fail(ExitCode::data, "prompts", "'ids' is {}; expected a list of token ids", shown(value["ids"]));
    return prompt;
  }
  if (!value.is_object())
    fail(ExitCode::data, "prompts", "{}; expected a text, or an object with 'prompt' or 'ids'", shown(value));
  return {json_text(value, "prompt", "prompts")};
}

/// The messages up to the last answer.
std::vector<ChatMessage> unanswered(const nlohmann::json& value) {
  std::vector<ChatMessage> messages = value.is_string() ? std::vector<ChatMessage>{{"user", value.get<std::string>()}}
                                                        : conversation_of(value, false).messages;
  while (!messages.empty() && messages.back().role == "assistant") messages.pop_back();
  if (messages.empty() || messages.back().content.empty())
    fail(ExitCode::data, "questions", "there is nothing to answer; expected a message of the user");
  return messages;
}

}  // namespace

std::vector<Prompt> parse_prompts(std::string_view text, const std::filesystem::path& path) {
  std::vector<Prompt> prompts;
  if (path.extension() == ".jsonl") {
    for_each_json_line(text, path, "prompts", [&](const nlohmann::json& value, std::int64_t line) {
      prompts.push_back(prompt_of(value));
      prompts.back().where = line_of(path, line);
      if (prompts.back().text.empty() && prompts.back().ids.empty())
        fail(ExitCode::data, "prompts", "the prompt is empty; expected at least one character");
    });
  } else {
    for (const NumberedLine& line : numbered_lines(text))
      prompts.push_back({std::string(line.text), {}, line_of(path, line.number)});
  }
  if (prompts.empty()) fail(ExitCode::data, "prompts", "{} has no prompt; expected one on each line", path.string());
  return prompts;
}

std::vector<ChatQuestion> parse_chat_questions(std::string_view text, const std::filesystem::path& path) {
  std::vector<ChatQuestion> questions;
  if (path.extension() == ".jsonl") {
    for_each_json_line(text, path, "questions", [&](const nlohmann::json& value, std::int64_t line) {
      questions.push_back({unanswered(value), line_of(path, line)});
    });
  } else {
    for (const NumberedLine& line : numbered_lines(text))
      questions.push_back({{{"user", std::string(line.text)}}, line_of(path, line.number)});
  }
  if (questions.empty())
    fail(ExitCode::data, "questions", "{} has no question; expected one on each line", path.string());
  return questions;
}

std::vector<std::int32_t> parse_ids(std::string_view list, const std::string& flag) {
  std::vector<std::int32_t> ids;
  const char *at = list.data(), *end = list.data() + list.size();
  while (at < end) {
    std::int32_t id = -1;
    const auto [next, error] = std::from_chars(at, end, id);
    const bool last = next == end;
    if (error != std::errc() || id < 0 || (!last && (*next != ',' || next + 1 == end)))
      fail(ExitCode::usage, flag, "{} '{}'; expected token ids such as 5,16,49", flag, list);
    ids.push_back(id);
    at = last ? end : next + 1;
  }
  return ids;
}

std::vector<std::int32_t> prompt_ids(const Tokenizer& tokenizer, const Prompt& prompt) {
  for (const std::int32_t id : prompt.ids)
    if (id >= tokenizer.vocab_size())
      fail(ExitCode::usage, "prompt", "{}: token {} is outside the vocabulary; expected 0 to {}", prompt.where, id,
           tokenizer.vocab_size() - 1);
  if (!prompt.ids.empty()) return prompt.ids;
  std::vector<std::int32_t> ids;
  try {
    ids = tokenizer.encode_with_special(prompt.text);
  } catch (const Error& error) {  // invalid text is reported as an invalid flag here
    throw Error(ExitCode::usage, "prompt", error.reason() + "; change " + prompt.where);
  }
  if (ids.empty()) fail(ExitCode::usage, "prompt", "{}: the prompt has no token; expected at least one", prompt.where);
  return ids;
}

}  // namespace trireme
