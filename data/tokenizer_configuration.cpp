#include "data/tokenizer_configuration.h"

#include <map>
#include <utility>

#include "core/error.h"
#include "core/io.h"
#include "data/json.h"
#include "data/special_ids.h"
#include "data/utf8.h"

namespace trireme {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char *configuration_name = "tokenizer_config.json", *older_name = "added_tokens.json";

/// An entry of added_tokens_decoder: its key is the id.
AddedToken read_added(const std::string& key, const json& value, const fs::path& path) {
  const bool is_number = !key.empty() && key.size() < 8 && key.find_first_not_of("0123456789") == std::string::npos;
  const auto content = value.is_object() ? value.find("content") : value.end();
  if (!is_number || !value.is_object() || content == value.end() || !content->is_string())
    fail(ExitCode::data, "tokenizer", "{}: added_tokens_decoder has {}: {}; expected an id and a token with a content",
         path.string(), in_quotes(key), shown(value));
  return {.id = std::stoi(key),
          .content = content->get<std::string>(),
          .special = flag_of(value, "special", false, path),
          .lstrip = flag_of(value, "lstrip", false, path),
          .rstrip = flag_of(value, "rstrip", false, path),
          .single_word = flag_of(value, "single_word", false, path),
          .normalized = flag_of(value, "normalized", false, path)};
}

json read_object(const fs::path& path) {
  json object = parse_json(read_file(path, read_limits::configuration), path);
  if (!object.is_object()) fail(ExitCode::data, "tokenizer", "{}: expected an object", path.string());
  return object;
}

/// The text of a special token: a text, or an object with a content. Empty if it is neither.
std::string text_of(const json& token) {
  if (token.is_string()) return token.get<std::string>();
  const auto content = token.is_object() ? token.find("content") : token.end();
  return token.is_object() && content != token.end() && content->is_string() ? content->get<std::string>() : "";
}

/// Each text that the configuration uses as a token, and the field that names it.
std::vector<std::pair<std::string, std::string>> named_texts(const json& configuration, const fs::path& folder) {
  std::vector<std::pair<std::string, std::string>> texts;
  for (const AddedToken& token : configured_tokens(configuration, folder))
    texts.emplace_back(token.content, fmt::format("added_tokens_decoder or {}", older_name));
  for (const char* list : {"additional_special_tokens", "extra_special_tokens"})
    if (const auto found = configuration.find(list); found != configuration.end() && found->is_array())
      for (const json& token : *found) texts.emplace_back(text_of(token), list);
  for (const char* name : {"bos_token", "eos_token"})
    if (const auto found = configuration.find(name); found != configuration.end())
      texts.emplace_back(text_of(*found), name);
  return texts;
}

}  // namespace

json tokenizer_configuration(const fs::path& folder) {
  const fs::path path = folder / configuration_name;
  return fs::exists(path) ? read_object(path) : json::object();
}

bool flag_of(const json& object, const char* key, bool otherwise, const fs::path& path) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return otherwise;
  if (!found->is_boolean())
    fail(ExitCode::data, "tokenizer", "{}: {} is {}; expected true or false", path.string(), key, shown(*found));
  return found->get<bool>();
}

std::vector<AddedToken> configured_tokens(const json& configuration, const fs::path& folder) {
  std::map<std::int32_t, AddedToken> all;
  const fs::path config_path = folder / configuration_name, older = folder / older_name;
  if (fs::exists(older)) {
    const json object = read_object(older);
    for (const auto& [content, id] : object.items()) {
      if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= 10'000'000)
        fail(ExitCode::data, "tokenizer", "{}: {} has the id {}; expected that of a token", older.string(),
             in_quotes(content), shown(id));
      all[id.get<std::int32_t>()] = {.id = id.get<std::int32_t>(), .content = content, .special = true};
    }
  }
  if (const auto decoder = configuration.find("added_tokens_decoder");
      decoder != configuration.end() && decoder->is_object())
    for (const auto& [key, value] : decoder->items()) {
      const AddedToken token = read_added(key, value, config_path);
      all[token.id] = token;
    }
  std::vector<AddedToken> tokens;
  for (auto& [id, token] : all) tokens.push_back(std::move(token));
  return tokens;
}

void require_configured_tokens(const Tokenizer& tokenizer, const fs::path& folder) {
  for (const auto& [text, field] : named_texts(tokenizer_configuration(folder), folder))
    if (!text.empty() && !special_id(tokenizer, text))
      fail(
          ExitCode::data, "tokenizer",
          "{}: {} is a token by {}, and not one of the tokenizer's own file; expected all tokens there, because "
          "transformers reads that text as one token, and this program would read it as ordinary text; save the folder "
          "again with AutoTokenizer.from_pretrained('{}').save_pretrained, or correct {}",
          folder.string(), in_quotes(text), field, folder.string(), field);
}

}  // namespace trireme
