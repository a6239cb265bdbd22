#include "data/scored_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "core/error.h"
#include "data/bpe_builder.h"
#include "data/utf8.h"

namespace trireme::scored_tokens {

using nlohmann::json;

namespace {

std::string as_json(std::string_view text) { return json(text).dump(); }

}  // namespace

std::vector<ScoredMerge> merges_of_scores(const std::vector<std::string>& tokens,
                                          const std::vector<std::int32_t>& types, const std::vector<float>& scores,
                                          const std::string& source) {
  TokenTable ids(tokens);
  for (std::size_t id = 0; id < tokens.size(); ++id)
    if (!tokens[id].empty() && (types[id] == normal || types[id] == user_defined))
      ids.insert(static_cast<std::int32_t>(id));
  std::vector<ScoredMerge> merges;
  std::size_t bytes = 0;
  for (std::size_t made = 0; made < tokens.size(); ++made) {
    const std::string_view token = tokens[made];
    if (token.empty() || ids.find(token) != static_cast<std::int32_t>(made)) continue;
    for (std::size_t at = 0; at < token.size();) {
      const auto character = decode_utf8(token, at);
      at += character ? character->bytes : 1;
      const std::int32_t left = at < token.size() ? ids.find(token.substr(0, at)) : -1;
      const std::int32_t right = left < 0 ? -1 : ids.find(token.substr(at));
      if (right < 0) continue;
      bytes += token.size();
      if (merges.size() == bpe_most_merges || bytes > longest_merges)
        fail(ExitCode::data, "tokenizer",
             "{}: tokens are made of two others in more than {} ways, or in ways of more than {} bytes; expected fewer",
             source, bpe_most_merges, longest_merges);
      merges.push_back({scores[made], at, token.size() - at, left, right});
    }
  }
  std::stable_sort(merges.begin(), merges.end(), [](const ScoredMerge& a, const ScoredMerge& b) {
    return std::tuple(-a.score, b.left_size, b.right_size, a.left, a.right) <
           std::tuple(-b.score, a.left_size, a.right_size, b.left, b.right);
  });
  return merges;
}

std::string merges_json(const std::vector<std::string>& tokens, const std::vector<ScoredMerge>& merges) {
  std::string text;
  for (const ScoredMerge& merge : merges)
    text += fmt::format("{}[{},{}]", text.empty() ? "" : ",", as_json(tokens[static_cast<std::size_t>(merge.left)]),
                        as_json(tokens[static_cast<std::size_t>(merge.right)]));
  return text;
}

json model_settings(bool falls_back, bool ignores_merges) {
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"fuse_unk", falls_back},
          {"byte_fallback", falls_back},
          {"ignore_merges", ignores_merges},
          {"end_of_word_suffix", nullptr},
          {"continuing_subword_prefix", nullptr}};
}

json character_settings(bool space_in_front) {
  json steps = json::array(), decoders = json::array();
  if (space_in_front) steps.push_back({{"type", "Prepend"}, {"prepend", space_mark}});
  steps.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", space_mark}});
  decoders.push_back({{"type", "Replace"}, {"pattern", {{"String", space_mark}}}, {"content", " "}});
  decoders.push_back({{"type", "ByteFallback"}});
  decoders.push_back({{"type", "Fuse"}});
  if (space_in_front) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"normalizer", {{"type", "Sequence"}, {"normalizers", steps}}},
          {"pre_tokenizer", nullptr},
          {"decoder", {{"type", "Sequence"}, {"decoders", decoders}}},
          {"model", model_settings(true, false)}};
}

json template_of(const std::vector<std::string>& tokens, std::optional<std::int32_t> front,
                 std::optional<std::int32_t> behind) {
  json single = json::array(), special = json::object();
  const auto add = [&](std::int32_t id) {
    const std::string& content = tokens[static_cast<std::size_t>(id)];
    single.push_back({{"SpecialToken", {{"id", content}, {"type_id", 0}}}});
    special[content] = {{"id", content}, {"ids", {id}}, {"tokens", {content}}};
  };
  if (front) add(*front);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  if (behind) add(*behind);
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", json::array()}, {"special_tokens", special}};
}

json added_token(std::size_t id, const std::string& content, bool special, bool normalized) {
  return {{"id", id},        {"content", content},       {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", normalized}, {"special", special}};
}

std::string tokenizer_json(const json& settings, const std::vector<std::string>& tokens, const std::string& merges) {
  json rest = settings;
  std::string model = rest["model"].dump();
  rest.erase("model");
  std::string text = rest.dump();
  text.pop_back();
  model.pop_back();
  text += ",\n\"model\":" + model + ",\n\"vocab\":{";
  for (std::size_t id = 0; id < tokens.size(); ++id)
    text += fmt::format("{}{}:{}", id == 0 ? "" : ",", as_json(tokens[id]), id);
  return text + "},\n\"merges\":[" + merges + "]}}\n";
}

}  // namespace trireme::scored_tokens
