// Writing tokenizer.json. The vocabulary and the merges are written as text; as JSON values they would need ten times
// the memory.
#include "core/error.h"
#include "data/bpe_tokenizer.h"
#include "data/byte_tokenizer.h"
#include "data/char_tokenizer.h"
#include "data/hugging_face.h"
#include "data/sentencepiece_tokenizer.h"

namespace trireme {

namespace {

using nlohmann::json;

json byte_level_step(bool words) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", words}};
}

json plain_model() {
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", false},
          {"end_of_word_suffix", nullptr},
          {"continuing_subword_prefix", nullptr}};
}

/// Everything but the vocabulary and the merges.
json settings_of(const Tokenizer& tokenizer) {
  if (const auto* pipeline = dynamic_cast<const PipelineTokenizer*>(&tokenizer)) {
    if (pipeline->kind() != hugging_face_kind)
      fail(ExitCode::usage, "tokenizer",
           "a tokenizer of {} cannot be written as tokenizer.json: its ranks are no list of merges; expected one of "
           "Hugging Face or one that prepare_data learnt; use a tokenizer.json from the beginning",
           pipeline->kind());
    return json::parse(pipeline->settings_json());
  }
  if (tokenizer.name() == sentence_piece_kind)
    fail(ExitCode::usage, "tokenizer",
         "this model of SentencePiece cannot be written as tokenizer.json: it has unigrams, or changes text by rules; "
         "expected one of merges alone, such as that of Llama 2; use its tokenizer.model");
  const bool by_bytes = dynamic_cast<const CharTokenizer*>(&tokenizer) == nullptr;
  const bool words = dynamic_cast<const BpeTokenizer*>(&tokenizer) != nullptr;
  json settings = {{"added_tokens", json::array()},
                   {"normalizer", nullptr},
                   {"pre_tokenizer", by_bytes ? byte_level_step(words) : json()},
                   {"post_processor", nullptr},
                   {"decoder", by_bytes ? byte_level_step(words) : json{{"type", "Fuse"}}},
                   {"model", plain_model()}};
  if (const auto id = tokenizer.end_of_text())
    settings["added_tokens"].push_back({{"id", *id},
                                        {"content", end_of_text_name},
                                        {"single_word", false},
                                        {"lstrip", false},
                                        {"rstrip", false},
                                        {"normalized", false},
                                        {"special", true}});
  return settings;
}

std::string quoted(std::string_view text) { return json(text).dump(); }

}  // namespace

std::string hugging_face_json(const Tokenizer& tokenizer) {
  json settings = settings_of(tokenizer);
  const std::string model = settings["model"].dump();
  settings.erase("model");
  settings["version"] = "1.0";
  settings["truncation"] = settings["padding"] = nullptr;
  const auto* pipeline = dynamic_cast<const PipelineTokenizer*>(&tokenizer);
  const auto* bpe = dynamic_cast<const BpeTokenizer*>(&tokenizer);
  const bool by_characters = dynamic_cast<const CharTokenizer*>(&tokenizer) != nullptr;
  std::string storage;
  const auto spelling = [&](std::int32_t id) -> std::string_view {
    if (pipeline != nullptr) return pipeline->spelling(id, storage);
    storage = tokenizer.decode({&id, 1});
    if (!by_characters) storage = spell_bytes(storage);
    return storage;
  };
  const auto tokens =
      pipeline != nullptr ? static_cast<std::int32_t>(pipeline->model().tokens().size()) : tokenizer.vocab_size();
  std::string text = settings.dump();
  text.pop_back();
  text += ",\n\"model\":" + model;
  text.pop_back();
  text += ",\n\"vocab\":{";
  for (std::int32_t id = 0; id < tokens; ++id)
    text += fmt::format("{}{}:{}", id == 0 ? "" : ",", quoted(spelling(id)), id);
  text += "},\n\"merges\":[";
  const BpeMerges* data = pipeline != nullptr ? &pipeline->model().data()
                          : bpe != nullptr    ? &bpe->vocabulary()
                                              : nullptr;
  bool first = true;
  for (std::size_t i = 0; data != nullptr && i < data->merges.size(); ++i) {
    const std::string left = quoted(spelling(data->merges[i].first));
    text += fmt::format("{}[{},{}]", first ? "" : ",", left, quoted(spelling(data->merges[i].second)));
    first = false;
  }
  return text + "]}}\n";
}

}  // namespace trireme
