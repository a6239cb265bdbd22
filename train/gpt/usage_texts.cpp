#include "train/gpt/usage_texts.h"

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "data/json.h"
#include "data/special_ids.h"

namespace trireme {

std::string UsageTexts::to_json() const {
  nlohmann::json json = {{"chat_template", chat_template},
                         {"special_tokens", special_tokens},
                         {"end_tokens", end_tokens},
                         {"context", context}};
  if (!base.empty()) json["base"] = base;
  return json.dump();
}

UsageTexts UsageTexts::parse(const std::string& text, const std::filesystem::path& path) {
  UsageTexts texts;
  if (text.empty()) return texts;
  const nlohmann::json json = parse_json(text, path);
  try {
    json.at("chat_template").get_to(texts.chat_template);
    json.at("special_tokens").get_to(texts.special_tokens);
    json.at("end_tokens").get_to(texts.end_tokens);
    json.at("context").get_to(texts.context);
    if (json.contains("base")) json.at("base").get_to(texts.base);
  } catch (const nlohmann::json::exception& error) {
    fail(ExitCode::data, "checkpoint", "{}: the entry 'usage' is malformed: {}", path.string(), error.what());
  }
  return texts;
}

void add_end(UsageTexts& usage, const Tokenizer& tokenizer, const std::string& text) {
  const std::optional<std::int32_t> end = special_id(tokenizer, {{"end", text}}, "end");
  if (!end || tokenizer.encode(text) == std::vector{*end}) return;  // a token that ordinary text has, too, ends nothing
  std::vector<std::int32_t>& ends = usage.end_tokens;
  if (std::find(ends.begin(), ends.end(), *end) != ends.end()) return;
  const std::optional<std::int32_t> of_text = tokenizer.end_of_text();
  if (ends.empty() && of_text && of_text != end) ends.push_back(*of_text);
  ends.push_back(*end);
}

}  // namespace trireme
