#include "models/gpt_text.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "core/error.h"
#include "models/settings.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// ---- the fields -----------------------------------------------------------------------------------------------------

// Each is stored under the name of its flag, with _ for -, except `count` (--experts) and `shared` (--shared-experts).
// A stored model that lacks a field is bad data, unless the field is optional or one of for_each_newer_field(). Put a
// new field there, so that older checkpoints can be read.

/// Of a model that has no entry for it; 0 if heads do not divide the width.
std::int64_t default_head_width(std::int64_t width, std::int64_t heads) {
  return heads > 0 && width % heads == 0 ? width / heads : 0;
}

/// Calls each(key, field). The optional kv_heads, ffn_width and head_width must be set.
template <class Config, class Each>
void for_each_field(Config& c, const Each& each) {
  each("layers", c.layers);
  each("heads", c.heads);
  each("kv_heads", *c.kv_heads);
  each("width", c.width);
  each("ffn_width", *c.ffn_width);
  each("context", c.context);
  each("vocab", c.vocab);
  each("dropout", c.dropout);
  each("bias", c.bias);
  each("activation", c.activation);
  each("norm", c.norm);
  each("positions", c.positions);
  each("tied", c.tied);
  each("document_separator", c.document_separator);
}

/// What models of older versions did not have: a stored model that lacks one of these has its default.
template <class Config, class Each>
void for_each_newer_field(Config& c, const Each& each) {
  each("head_width", *c.head_width);
  each("qkv_bias", c.qkv_bias);
  each("norm_eps", c.norm_eps);
  each("rope_base", c.rope_base);
  each("rope_scaling", c.rope_scaling);
  each("rope_interleaved", c.rope_interleaved);
  each("restart_positions", c.restart_positions);
  each("qk_norm", c.qk_norm);
  each("window", c.window);
  each("window_every", c.window_every);
  each("full_every", c.full_every);
  each("attention_softcap", c.attention_softcap);
  each("logit_softcap", c.logit_softcap);
  each("zero_centred_norms", c.zero_centred_norms);
  each("post_norms", c.post_norms);
  each("scaled_embeddings", c.scaled_embeddings);
  each("query_pre_attn_scalar", c.query_pre_attn_scalar);
  each("window_rope_base", c.window_rope_base);
  each("lora_rank", c.lora.rank);
  each("lora_alpha", c.lora.alpha);
  each("lora_dropout", c.lora.dropout);
  each("lora_targets", c.lora.targets);
}

template <class Experts, class Each>
void for_each_experts_field(Experts& o, const Each& each) {
  each("count", o.count);
  each("top_k", o.top_k);
  each("shared", o.shared);
  each("capacity_factor", o.capacity_factor);
  each("aux_loss", o.aux_loss);
  each("z_loss", o.z_loss);
  each("bias_update", o.bias_update);
  each("router_norm", o.norm);
  each("aux_scope", o.balance);
}

/// Stores a field; an optional one that is not set has no entry.
struct Writer {
  nlohmann::json& json;

  template <class T>
  void operator()(const char* key, const T& field) const {
    if constexpr (std::is_enum_v<T>)
      json[key] = name_of(field);
    else
      json[key] = field;
  }
  template <class T>
  void operator()(const char* key, const std::optional<T>& field) const {
    if (field) (*this)(key, *field);
  }
};

[[noreturn]] void refuse_unknown(const char* key, const nlohmann::json& value, const fs::path& path) {
  fail(ExitCode::data, "checkpoint",
       "{}: '{}' is {}, which this program does not know; use the version of Trireme that wrote it", path.string(), key,
       value.dump());
}

struct Reader {
  const nlohmann::json& json;
  const fs::path& path;

  void operator()(const char* key, std::int64_t& field) const { field = json_count(json, key, path); }
  void operator()(const char* key, double& field) const { field = json.at(key); }
  void operator()(const char* key, bool& field) const { field = json.at(key); }
  void operator()(const char* key, std::string& field) const { field = json.at(key); }
  template <class T>
  void operator()(const char* key, std::optional<T>& field) const {
    if (json.contains(key)) (*this)(key, field.emplace());
  }
  template <class E>
  requires std::is_enum_v<E>
  void operator()(const char* key, E& field) const {
    for (const auto& [name, value] : named_values<E>())
      if (json.at(key) == name) {
        field = value;
        return;
      }
    refuse_unknown(key, json.at(key), path);
  }
};

/// Leaves a field as it is if there is no entry for it.
struct NewerReader {
  Reader reader;

  template <class T>
  void operator()(const char* key, T& field) const {
    if (reader.json.contains(key)) reader(key, field);
  }
};

nlohmann::json gpt_json(GptConfig c, DType dtype) {
  c.kv_heads = c.key_value_heads();
  c.ffn_width = c.hidden();
  c.head_width = c.head_features();
  nlohmann::json json = {{"dtype", name(dtype)}};
  for_each_field(c, Writer{json});
  for_each_newer_field(c, Writer{json});
  if (c.experts.count > 0) {
    for_each_experts_field(c.experts, Writer{json["experts"]});
    json["moe_every"] = c.moe_every;
    json["expert_ffn_width"] = c.expert_hidden();
  }
  return json;
}

/// A model without experts has neither `experts` nor `moe_every` nor `expert_ffn_width`.
GptConfig read_config(const nlohmann::json& json, const fs::path& path) {
  GptConfig config = {.kv_heads = 0, .ffn_width = 0};
  for_each_field(config, Reader{json, path});
  config.head_width = default_head_width(config.width, config.heads);
  for_each_newer_field(config, NewerReader{{json, path}});
  if (json.contains("experts")) for_each_experts_field(config.experts, Reader{json["experts"], path});
  if (config.experts.count > 0) {
    config.moe_every = json_count(json, "moe_every", path);
    NewerReader{{json, path}}("expert_ffn_width", config.expert_ffn_width);
  }
  return config;
}

/// Throws unless the choices of attention and norms are those of a model.
void require_sensible(const GptConfig& c, const fs::path& path) {
  const auto positive = [&](const char* name, double value) {
    if (value > 0 && std::isfinite(value)) return;
    fail(ExitCode::data, "checkpoint", "{}: the entry 'model' has a {} of {}; expected a number above 0", path.string(),
         name, value);
  };
  positive("norm_eps", c.norm_eps);
  positive("rope_base less 1", c.rope_base - 1);
  positive("attention_softcap", c.attention_softcap.value_or(1));
  positive("logit_softcap", c.logit_softcap.value_or(1));
  positive("query_pre_attn_scalar", c.query_pre_attn_scalar.value_or(1));
  positive("window_rope_base less 1", c.window_rope_base.value_or(2) - 1);
  positive("lora_rank plus 1", static_cast<double>(c.lora.rank) + 1);
  positive("1 less lora_dropout", 1 - c.lora.dropout);
  for (const std::int64_t count : {c.window.value_or(1), c.window_every, c.full_every.value_or(1)})
    positive("window, or a distance between blocks,", static_cast<double>(count));
  try {
    nn::parse_rope_scaling(c.rope_scaling);
  } catch (const Error& error) {
    fail(ExitCode::data, "checkpoint", "{}: the entry 'model' is malformed: {}", path.string(), error.what());
  }
}

/// Throws unless a model of these sizes can be built and its matrices alone have no more elements than are stored.
/// Otherwise a made-up size would be found only when memory runs out.
void require_possible(const GptConfig& c, const fs::path& path, double elements) {
  const auto refuse = [&](const std::string& what) {
    fail(ExitCode::data, "checkpoint",
         "{}: the entry 'model' describes an impossible model: {}; use another checkpoint", path.string(), what);
  };
  const std::int64_t experts = std::max<std::int64_t>(c.experts.count, 0);
  const std::pair<const char*, std::int64_t> sizes[] = {{"layers", c.layers},
                                                        {"heads", c.heads},
                                                        {"width", c.width},
                                                        {"context", c.context},
                                                        {"vocab", c.vocab},
                                                        {"kv_heads", *c.kv_heads},
                                                        {"head_width", *c.head_width},
                                                        {"ffn_width", *c.ffn_width},
                                                        {"moe_every", c.moe_every},
                                                        {"expert_ffn_width", c.expert_hidden()},
                                                        {"experts", experts + 1}};
  for (const auto& [name, size] : sizes) {
    if (size < 1 || size > std::numeric_limits<std::int32_t>::max())
      refuse(fmt::format("{} is {}; expected 1 to 2^31 - 1", name, size));
  }
  if (c.heads % *c.kv_heads != 0)
    refuse(fmt::format("heads is {} and kv_heads is {}; expected a multiple of it", c.heads, *c.kv_heads));
  if (experts > 0 && (c.experts.top_k < 1 || c.experts.top_k > experts))
    refuse(fmt::format("top_k is {}; expected 1 to {}, the experts", c.experts.top_k, experts));
  const auto number = [](std::int64_t n) { return static_cast<double>(n); };
  const double learned = c.positions == PositionEncoding::learned ? number(c.context) : 0;
  const double mlps = number(c.layers - c.mixtures()) * number(*c.ffn_width) +
                      number(c.mixtures()) * number(experts) * number(c.expert_hidden());
  const double needed = number(c.width) * (number(c.vocab) + learned +
                                           2 * number(c.layers) * number(c.heads) * number(*c.head_width) + 2 * mlps);
  if (needed > elements)
    refuse(fmt::format("its matrices would have more than {:.0f} elements; expected at most {:.0f}, which are stored",
                       needed, elements));
}

/// Missing in checkpoints of older versions: f32.
DType read_dtype(const nlohmann::json& json, const fs::path& path) {
  if (!json.contains("dtype")) return DType::f32;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64})
    if (json.at("dtype") == std::string(name(dtype))) return dtype;
  refuse_unknown("dtype", json.at("dtype"), path);
}

/// Gives the JSON of a stored model to `read`. An entry that is missing or has another type is bad data.
template <class Read>
auto read_json(const std::string& text, const fs::path& path, const Read& read) {
  const nlohmann::json json = parse_json(text, path);
  try {
    return read(json);
  } catch (const nlohmann::json::exception& error) {
    fail(ExitCode::data, "checkpoint", "{}: the entry 'model' is malformed: {}", path.string(), error.what());
  }
}

using Settings = std::vector<Model::Setting>;

/// The stored model, with the defaults of the fields that it lacks.
nlohmann::json with_newer_fields(nlohmann::json model) {
  nlohmann::json defaults;
  const std::int64_t width = model.at("width"), heads = model.at("heads");
  const GptConfig config = {.head_width = default_head_width(width, heads)};
  for_each_newer_field(config, Writer{defaults});
  for (const auto& [key, value] : defaults.items())
    if (!model.contains(key)) model[key] = value;
  for (const char* key : {"attention_softcap", "logit_softcap", "full_every"})
    if (!model.contains(key)) model[key] = "none";
  for (const char* key : {"window", "query_pre_attn_scalar", "window_rope_base"})
    if (!model.contains(key)) model[key] = "auto";
  if (model.contains("experts") && !model.contains("expert_ffn_width"))
    model["expert_ffn_width"] = model.at("ffn_width");
  return model;
}

Settings settings_of(const nlohmann::json& stored) {
  const nlohmann::json model = with_newer_fields(stored);
  const auto experts = model.find("experts");  // a model without experts has no such entry
  Settings values = {{"--experts", experts == model.end() ? "0" : setting_text(experts->at("count"))},
                     {"--document-mask", model.contains("document_separator") ? "on" : "off"}};
  Settings derived;
  for (const auto& [key, value] : model.items()) {
    if (key == "experts") continue;
    Settings& list = key == "kv_heads" || key.ends_with("ffn_width") || key == "head_width" ? derived : values;
    list.emplace_back(flag_of(key), setting_text(value));
  }
  if (experts != model.end())
    for (const auto& [key, value] : experts->items())
      if (key != "count") values.emplace_back(flag_of(key == "shared" ? "shared_experts" : key), setting_text(value));
  values.insert(values.end(), derived.begin(), derived.end());
  return values;
}

}  // namespace

std::string gpt_text(const GptConfig& config, DType dtype) { return gpt_json(config, dtype).dump(); }

std::vector<Model::Setting> gpt_settings(const std::string& text, const fs::path& path) {
  return read_json(text, path, settings_of);
}

StoredGpt read_gpt_text(const std::string& text, const fs::path& path, double elements) {
  return read_json(text, path, [&](const nlohmann::json& json) {
    StoredGpt stored{.config = read_config(json, path), .dtype = read_dtype(json, path)};
    require_sensible(stored.config, path);
    require_possible(stored.config, path, elements);
    return stored;
  });
}

}  // namespace trireme
