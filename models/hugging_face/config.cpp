#include "models/hugging_face/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "data/json.h"
#include "data/utf8.h"
#include "models/config_difference.h"
#include "models/hugging_face/architectures.h"

namespace trireme::hugging_face {

namespace fs = std::filesystem;
using nlohmann::json;

const std::vector<Architecture>& architectures() {
  static const std::vector<Architecture> all = {gpt2(),    llama(),     mistral(), qwen2(),  qwen3(),
                                                mixtral(), qwen3_moe(), gemma(),   gemma2(), gemma3_text()};
  return all;
}

namespace {

/// Fields of every architecture that do not change logits: names, versions, tokens, and settings of generation and of
/// other kinds of models.
constexpr std::string_view harmless_fields =
    "model_type architectures _name_or_path name_or_path transformers_version torch_dtype dtype use_cache "
    "initializer_range bos_token_id eos_token_id pad_token_id sep_token_id decoder_start_token_id "
    "task_specific_params tokenizer_class finetuning_task problem_type id2label label2id num_labels "
    "output_attentions output_hidden_states output_scores return_dict return_dict_in_generate "
    "chunk_size_feed_forward torchscript use_bfloat16 tf_legacy_loss remove_invalid_values "
    "exponential_decay_length_penalty suppress_tokens begin_suppress_tokens bad_words_ids "
    "forced_bos_token_id forced_eos_token_id max_length min_length do_sample early_stopping num_beams "
    "num_beam_groups diversity_penalty temperature top_k top_p typical_p repetition_penalty "
    "length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size num_return_sequences "
    "attn_implementation _attn_implementation _attn_implementation_autoset cache_implementation prefix "
    "_num_labels gradient_checkpointing is_llama_config transformers.js_config unsloth_fixed "
    "unsloth_version ";

/// Ignores the fields of a list that has a space after each.
void ignore_words(Fields& fields, std::string_view words) {
  while (!words.empty()) {
    const std::size_t end = words.find(' ');
    fields.ignore({std::string(words.substr(0, end))});
    words.remove_prefix(end + 1);
  }
}

std::vector<std::string> model_types() {
  std::vector<std::string> names;
  for (const Architecture& architecture : architectures()) names.emplace_back(architecture.model_type);
  return names;
}

std::vector<std::int32_t> end_tokens_of(const json& value, const fs::path& path) {
  std::vector<std::int32_t> ids;
  for (const json& id : value.is_array() ? value : json::array({value})) {
    if (!id.is_number_unsigned() ||
        id.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max()))
      fail(ExitCode::data, "hugging face", "{}: eos_token_id is {}; expected a token's id, or a list of ids",
           path.string(), shown(value));
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

json written(const Architecture& architecture, const GptConfig& config) {
  json object;
  architecture.write(config, object);
  return object;
}

/// The flags, each with its value, that the architecture would lose; nothing if it cannot say the rest, either.
std::optional<std::vector<std::string>> lost_settings(const Architecture& architecture, const GptConfig& config) {
  const fs::path path = "config.json";
  GptConfig back;
  try {
    const json object = written(architecture, config);
    Fields fields(object, path);
    back = architecture.read(fields);
  } catch (const Error&) { return std::nullopt; }
  std::vector<std::string> lost;
  back.lora = config.lora;  // is added to the weights, or written apart
  for (const ConfigDifference& difference : config_differences(config, back))
    lost.push_back(fmt::format("{} {} (there: {})", difference.flag, difference.value, difference.other));
  return lost;
}

/// The first architecture that can say what the configuration says.
const Architecture& architecture_of(const GptConfig& config) {
  const Architecture* nearest = nullptr;
  std::vector<std::string> least;
  for (const Architecture& architecture : architectures()) {
    std::optional<std::vector<std::string>> lost = lost_settings(architecture, config);
    if (!lost || (nearest != nullptr && lost->size() >= least.size())) continue;
    if (lost->empty()) return architecture;
    nearest = &architecture;
    least = std::move(*lost);
  }
  if (nearest == nullptr)
    fail(ExitCode::usage, "hugging face",
         "a model of these sizes cannot be written for Hugging Face; do not export it");
  fail(ExitCode::usage, "hugging face",
       "no architecture of Hugging Face that this program writes computes what this model does; the nearest is {}, "
       "which differs in {}; expected a model of {}; train with the values that are there, or do not export",
       nearest->model_type, fmt::join(least, ", "), fmt::join(model_types(), ", "));
}

}  // namespace

ModelConfig parse_config(std::string_view text, const fs::path& path) {
  const json object = parse_json(text, path);
  Fields fields(object, path);
  const std::string type = fields.text("model_type");
  const auto& all = architectures();
  const auto known = std::find_if(all.begin(), all.end(), [&](const auto& a) { return a.model_type == type; });
  if (known == all.end()) fields.refuse("model_type", fmt::format("one of {}", fmt::join(model_types(), ", ")));
  ModelConfig config{.model_type = type, .gpt = known->read(fields), .end_tokens = {}};
  if (fields.has("quantization_config"))
    fields.refuse("quantization_config", "weights in f32, bf16 or f16, without quantization");
  fields.require("is_encoder_decoder", false);
  fields.require("is_decoder", false);
  fields.require("cross_attention_hidden_size", nullptr);
  fields.require("pruned_heads", json::object());
  fields.require("use_mrope", false);
  fields.require("rope_interleaved", false);
  fields.require("tie_encoder_decoder", false);
  ignore_words(fields, harmless_fields);
  fields.refuse_others();
  if (fields.has("eos_token_id")) config.end_tokens = end_tokens_of(object.at("eos_token_id"), path);
  return config;
}

std::optional<std::vector<std::int32_t>> parse_end_tokens(std::string_view text, const fs::path& path) {
  const json object = parse_json(text, path);
  Fields fields(object, path);
  if (!fields.has("eos_token_id")) return std::nullopt;
  return end_tokens_of(object.at("eos_token_id"), path);
}

std::string model_type_of(const GptConfig& config) { return std::string(architecture_of(config).model_type); }

json end_tokens_json(const std::vector<std::int32_t>& ends) {
  return ends.empty() ? json() : ends.size() == 1 ? json(ends.front()) : json(ends);
}

std::string config_text(const GptConfig& config, DType dtype, const TokenIds& tokens) {
  const Architecture& architecture = architecture_of(config);
  json object = written(architecture, config);
  object["model_type"] = architecture.model_type;
  object["architectures"] = {architecture.class_name};
  object["torch_dtype"] = dtype == DType::bf16 ? "bfloat16" : dtype == DType::f16 ? "float16" : "float32";
  const auto id = [](std::optional<std::int32_t> token) { return token ? json(*token) : json(); };
  object["bos_token_id"] = id(tokens.begin);
  object["eos_token_id"] = end_tokens_json(tokens.ends);
  object["pad_token_id"] = id(tokens.padding);
  return object.dump(2) + "\n";
}

WeightMap weights_of(const GptConfig& config) {
  const std::string type = model_type_of(config);
  for (const Architecture& architecture : architectures())
    if (architecture.model_type == type) return architecture.weights(config, std::string(architecture.base));
  fail(ExitCode::internal, "hugging face", "no row for {}", type);
}

}  // namespace trireme::hugging_face
