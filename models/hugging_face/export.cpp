#include "models/hugging_face/export.h"

#include <fmt/format.h>

#include <optional>

#include "core/io.h"
#include "data/chat/chat_template.h"
#include "data/hugging_face.h"
#include "data/safetensors.h"
#include "data/sentencepiece.h"
#include "models/hugging_face/architectures.h"
#include "models/hugging_face/config.h"
#include "models/hugging_face/fields.h"
#include "models/hugging_face/folder.h"
#include "parallel/comm/texts.h"

namespace trireme::hugging_face {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

/// The files of the weights: which tensors each has, in the order in which they come.
class ShardPlan {
 public:
  ShardPlan(const std::vector<TheirTensor>& tensors, DType dtype, std::uint64_t shard_bytes) {
    std::uint64_t in_shard = 0;
    for (const TheirTensor& tensor : tensors) {
      const std::uint64_t bytes = static_cast<std::uint64_t>(tensor.shape.count()) * size_of(dtype);
      if (shards_.empty() || (in_shard > 0 && in_shard + bytes > shard_bytes)) {
        shards_.emplace_back();
        in_shard = 0;
      }
      shards_.back().push_back({tensor.name, dtype, tensor.shape});
      in_shard += bytes;
      total_ += bytes;
    }
  }

  std::size_t count() const { return shards_.size(); }
  const std::vector<SafetensorsEntry>& entries(std::size_t shard) const { return shards_[shard]; }
  std::string file(std::size_t shard) const {
    return count() == 1 ? weights_name : fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, count());
  }
  std::string index_text() const {
    json index = {{"metadata", {{"total_size", total_}}}, {"weight_map", json::object()}};
    for (std::size_t shard = 0; shard < count(); ++shard)
      for (const SafetensorsEntry& entry : shards_[shard]) index["weight_map"][entry.name] = file(shard);
    return index.dump(2) + "\n";
  }
  std::uint64_t bytes() const { return total_; }

 private:
  std::vector<std::vector<SafetensorsEntry>> shards_;
  std::uint64_t total_ = 0;
};

/// Writes tensors, as they come, to the files of a plan.
class ShardWriter {
 public:
  ShardWriter(const fs::path& folder, const ShardPlan& plan) : folder_(folder), plan_(plan) {}
  void write(const Tensor& tensor) {
    if (!file_) file_.emplace(folder_ / plan_.file(shard_), plan_.entries(shard_), metadata());
    file_->write(tensor);
    if (++in_shard_ < plan_.entries(shard_).size()) return;
    file_->commit();
    file_.reset();
    ++shard_;
    in_shard_ = 0;
  }

 private:
  static std::map<std::string, std::string> metadata() { return {{"format", "pt"}}; }

  fs::path folder_;
  const ShardPlan& plan_;
  std::optional<SafetensorsWriter> file_;
  std::size_t shard_ = 0, in_shard_ = 0;
};

/// Copies the texts of another folder that are there, except config.json and the index. `ends`: the tokens that end a
/// text now; fine-tuning may have added one.
void copy_texts(const fs::path& from, const fs::path& to, const std::vector<std::int32_t>& ends) {
  for (const char* name :
       {tokenizer_name, tokenizer_config_name, generation_config_name, "special_tokens_map.json", "added_tokens.json",
        "chat_template.jinja", "chat_template.json", "vocab.json", "merges.txt", "tokenizer.model"})
    if (is_there(from / name)) write_file(to / name, read_file(from / name, read_limits::tokenizer));
  if (read_config(from).end_tokens == ends) return;
  json generation = json::object();
  if (const fs::path path = from / generation_config_name; is_there(path))
    generation = parse_json(read_file(path, read_limits::configuration), path);
  generation["eos_token_id"] = end_tokens_json(ends);
  write_file(to / generation_config_name, generation.dump(2) + "\n");
}

std::vector<std::int32_t> end_tokens_of(const Exported& exported) {
  if (!exported.end_tokens.empty()) return exported.end_tokens;
  if (!exported.texts_from.empty()) return read_config(exported.texts_from).end_tokens;
  if (exported.tokenizer == nullptr) return {};
  const std::optional<std::int32_t> end = exported.tokenizer->end_of_text();
  return end ? std::vector{*end} : std::vector<std::int32_t>();
}

TokenIds token_ids_of(const Exported& exported) {
  TokenIds ids{.ends = end_tokens_of(exported)};
  if (exported.tokenizer == nullptr) return ids;
  const SpecialTokens tokens =
      exported.texts_from.empty() ? exported.special_tokens : template_texts(exported.texts_from).special_tokens;
  ids.begin = special_id(*exported.tokenizer, tokens, "bos_token");
  ids.padding = special_id(*exported.tokenizer, tokens, "pad_token");
  return ids;
}

void write_own_texts(const fs::path& to, const Exported& exported) {
  const Tokenizer* tokenizer = exported.tokenizer;
  const TokenIds ids = token_ids_of(exported);
  const std::vector<std::int32_t>& ends = ids.ends;
  json generation = {{"do_sample", false}};
  if (ids.begin) generation["bos_token_id"] = *ids.begin;
  if (ids.padding) generation["pad_token_id"] = *ids.padding;
  if (!ends.empty()) generation["eos_token_id"] = end_tokens_json(ends);
  write_file(to / generation_config_name, generation.dump(2) + "\n");
  if (tokenizer == nullptr) return;
  json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                 {"model_max_length", exported.config.context},
                 {"clean_up_tokenization_spaces", false}};
  const auto* sentence_piece = dynamic_cast<const SentencePieceTokenizer*>(tokenizer);
  if (sentence_piece != nullptr) {
    write_file(to / sentence_piece_name, sentence_piece->file());
    config["tokenizer_class"] = "LlamaTokenizer";
    config["add_bos_token"] = sentence_piece->ends().begin;
    config["add_eos_token"] = sentence_piece->ends().end;
    if (!ends.empty()) config["eos_token"] = sentence_piece->piece(ends.front());
  } else {
    write_file(to / tokenizer_name, hugging_face_json(*tokenizer));
    if (!ends.empty()) config["eos_token"] = tokenizer->decode(std::span(ends).first(1));
  }
  for (const char* name : {"bos_token", "pad_token", "unk_token"})
    if (special_id(*tokenizer, exported.special_tokens, name)) config[name] = exported.special_tokens.at(name);
  write_file(to / tokenizer_config_name, config.dump(2) + "\n");
}

void write_texts(const fs::path& to, const Exported& exported, const ShardPlan& plan) {
  write_file(to / config_name, config_text(exported.config, exported.dtype, token_ids_of(exported)));
  if (plan.count() > 1) write_file(to / index_name, plan.index_text());
  if (exported.texts_from.empty())
    write_own_texts(to, exported);
  else
    copy_texts(exported.texts_from, to, end_tokens_of(exported));
  if (!exported.chat_template.empty()) write_file(to / "chat_template.jinja", exported.chat_template);
}

}  // namespace

void require_exportable(const GptConfig& config, const Tokenizer* tokenizer) {
  model_type_of(config);
  if (tokenizer != nullptr && tokenizer->name() != sentence_piece_kind) hugging_face_json(*tokenizer);
}

std::uint64_t write_folder(const fs::path& folder, const Exported& exported,
                           const std::vector<checkpoint::HeldTensor>& held, ProcessGroup& group,
                           const std::function<void(std::uint64_t)>& progress) {
  const WeightMap map = weights_of(exported.config);
  const ShardPlan plan(their_tensors(map), exported.dtype, exported.shard_bytes);
  const bool writes = group.rank() == 0;
  std::optional<AtomicFolder> place;
  std::optional<ShardWriter> shards;
  fail_together(group, [&] {
    if (!writes) return;
    place.emplace(folder);
    require_space(place->temporary(), plan.bytes());
    shards.emplace(place->temporary(), plan);
  });
  std::uint64_t done = 0;
  write_weights(
      held, map, group, exported.dtype,
      [&](const std::string&, const Tensor& whole) {
        shards->write(whole);
        done += static_cast<std::uint64_t>(whole.bytes());
        if (progress) progress(done);
      },
      exported.config.lora.scale());
  fail_together(group, [&] {
    if (!writes) return;
    shards.reset();
    write_texts(place->temporary(), exported, plan);
    place->commit();
  });
  return done;
}

}  // namespace trireme::hugging_face
