// A tokenizer, read from the keys of a GGUF file: as the text of a tokenizer.json, which is then parsed.
#include "data/gguf/tokenizer.h"

#include <algorithm>
#include <cmath>

#include "data/bpe_builder.h"
#include "data/gguf/keys.h"
#include "data/gguf/tokens.h"
#include "data/hugging_face.h"
#include "data/scored_tokens.h"

namespace trireme {
namespace gguf_tokens {
namespace {

using nlohmann::json;

std::vector<std::int32_t> read_types(const GgufKeys& keys, std::size_t tokens) {
  std::vector<std::int32_t> types(tokens, normal);
  if (keys.find("tokenizer.ggml.token_type") == nullptr) return types;
  const GgufValue& value = keys.array("tokenizer.ggml.token_type", GgufType::i32);
  if (value.count() != tokens) keys.refuse("tokenizer.ggml.token_type", fmt::format("{} types", tokens));
  std::size_t id = 0;
  value.for_each([&](const GgufValue& each) { types[id++] = static_cast<std::int32_t>(each.whole()); });
  return types;
}

json gguf_byte_level(bool words) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", words}};
}

json gpt2_settings(const GgufKeys& keys) {
  const std::string pre = keys.text("tokenizer.ggml.pre");
  const auto* named =
      std::find_if(named_patterns.begin(), named_patterns.end(), [&](const auto& n) { return pre == n.name; });
  if (named == named_patterns.end()) keys.refuse("tokenizer.ggml.pre", "gpt-2, llama-bpe, qwen2 or gpt-4o");
  json cut = gguf_byte_level(true);
  if (named->pattern != WordPattern::gpt2)
    cut = {{"type", "Sequence"},
           {"pretokenizers",
            {{{"type", "Split"},
              {"pattern", {{"Regex", regular_expression(named->pattern)}}},
              {"behavior", "Isolated"},
              {"invert", false}},
             gguf_byte_level(false)}}};
  return {{"normalizer", named->composes ? json{{"type", "NFC"}} : json()},
          {"pre_tokenizer", cut},
          {"decoder", gguf_byte_level(true)},
          {"model", model_settings(false, named->ignores_merges)}};
}

}  // namespace
}  // namespace gguf_tokens

std::vector<std::int32_t> gguf_end_tokens(const GgufLayout& layout, const std::filesystem::path& path) {
  const GgufKeys keys(layout, path);
  std::vector<std::int32_t> ends;
  if (keys.find("tokenizer.ggml.tokens") == nullptr) return ends;
  const std::size_t tokens = keys.array("tokenizer.ggml.tokens", GgufType::text).count();
  for (const char* key : gguf_tokens::end_token_keys)
    if (const auto id = keys.token(key, tokens); id && std::find(ends.begin(), ends.end(), *id) == ends.end())
      ends.push_back(*id);
  return ends;
}

SpecialTokens gguf_special_tokens(const GgufLayout& layout, const std::filesystem::path& path) {
  using namespace gguf_tokens;
  const GgufKeys keys(layout, path);
  SpecialTokens special;
  if (keys.find("tokenizer.ggml.tokens") == nullptr) return special;
  const std::vector<std::string> tokens = keys.texts("tokenizer.ggml.tokens", bpe_most_tokens);
  const std::vector<std::int32_t> types = read_types(keys, tokens.size());
  for (const auto& [key, name] : {std::pair("bos", "bos_token"), {"eos", "eos_token"}, {"padding", "pad_token"}}) {
    const auto id = keys.token(fmt::format("tokenizer.ggml.{}_token_id", key), tokens.size());
    // Others are spelled in the alphabet of bytes, or stand for spaces: templates do not write them.
    if (id && types[static_cast<std::size_t>(*id)] == control) special[name] = tokens[static_cast<std::size_t>(*id)];
  }
  return special;
}

std::shared_ptr<const Tokenizer> read_gguf_tokenizer(const GgufLayout& layout, const std::filesystem::path& path) {
  using namespace gguf_tokens;
  const GgufKeys keys(layout, path);
  const std::string model = keys.text("tokenizer.ggml.model");
  if (model != "gpt2" && model != "llama") keys.refuse("tokenizer.ggml.model", "gpt2 or llama");
  std::vector<std::string> tokens = keys.texts("tokenizer.ggml.tokens", bpe_most_tokens);
  std::vector<std::int32_t> types = read_types(keys, tokens.size());
  const std::size_t all = tokens.size();
  while (!types.empty() && types.back() == unused) types.pop_back();  // rows that fill up the embedding
  tokens.resize(types.size());

  json settings =
      model == "gpt2" ? gpt2_settings(keys) : character_settings(keys.flag("tokenizer.ggml.add_space_prefix", true));
  settings["version"] = "1.0";
  settings["truncation"] = settings["padding"] = nullptr;
  settings["added_tokens"] = json::array();
  for (std::size_t id = 0; id < tokens.size(); ++id)
    if (types[id] == control || types[id] == user_defined || types[id] == unknown)
      settings["added_tokens"].push_back(added_token(id, tokens[id], types[id] != user_defined, false));
  const auto bos = keys.token("tokenizer.ggml.bos_token_id", all), eos = keys.token("tokenizer.ggml.eos_token_id", all);
  const bool begins = keys.flag("tokenizer.ggml.add_bos_token", model == "llama"),
             ends = keys.flag("tokenizer.ggml.add_eos_token", false);
  if (begins && !bos) keys.refuse("tokenizer.ggml.bos_token_id", "the token that add_bos_token asks for");
  if (ends && !eos) keys.refuse("tokenizer.ggml.eos_token_id", "the token that add_eos_token asks for");
  settings["post_processor"] =
      begins || ends ? template_of(tokens, begins ? bos : std::nullopt, ends ? eos : std::nullopt) : json();

  std::string merges;
  if (model == "gpt2") {
    for (const std::string& merge : keys.texts("tokenizer.ggml.merges", 1 << 20))
      merges += (merges.empty() ? "" : ",") + json(merge).dump();
  } else {
    std::vector<float> scores;
    const GgufValue& stored = keys.array("tokenizer.ggml.scores", GgufType::f32);
    if (stored.count() != all) keys.refuse("tokenizer.ggml.scores", fmt::format("{} scores", all));
    stored.for_each([&](const GgufValue& each) { scores.push_back(static_cast<float>(each.number())); });
    if (std::any_of(scores.begin(), scores.end(), [](float score) { return !std::isfinite(score); }))
      keys.refuse("tokenizer.ggml.scores", "finite numbers");
    settings["model"]["rank_by_token"] = true;
    merges = merges_json(tokens, merges_of_scores(tokens, types, scores, path.string()));
    if (const auto id = keys.token("tokenizer.ggml.unknown_token_id", tokens.size()))
      settings["model"]["unk_token"] = tokens[static_cast<std::size_t>(*id)];
  }
  return parse_hugging_face_json(tokenizer_json(settings, tokens, merges), path);
}

}  // namespace trireme
