#include "models/gpt_text.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "core/error.h"
#include "models/settings.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// ---- the fields -----------------------------------------------------------------------------------------------------

// Each is stored under the name of its flag, with _ for -, except `count` (--experts) and `shared` (--shared-experts).
// A stored model that lacks a field is bad data, unless the field is optional. Make a new field optional, so that older
// checkpoints can be read.

/// Calls each(key, field). The optional kv_heads and ffn_width must be set.
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

nlohmann::json gpt_json(GptConfig c, DType dtype) {
  c.kv_heads = c.key_value_heads();
  c.ffn_width = c.hidden();
  nlohmann::json json = {{"dtype", name(dtype)}};
  for_each_field(c, Writer{json});
  if (c.experts.count > 0) {
    for_each_experts_field(c.experts, Writer{json["experts"]});
    json["moe_every"] = c.moe_every;
  }
  return json;
}

/// A model without experts has neither `experts` nor `moe_every`.
GptConfig read_config(const nlohmann::json& json, const fs::path& path) {
  GptConfig config = {.kv_heads = 0, .ffn_width = 0};
  for_each_field(config, Reader{json, path});
  if (json.contains("experts")) for_each_experts_field(config.experts, Reader{json["experts"], path});
  if (config.experts.count > 0) config.moe_every = json_count(json, "moe_every", path);
  return config;
}

/// Throws unless a model of these sizes can be built and its matrices alone have no more elements than are stored.
/// Otherwise a made-up size would be found only when memory runs out.
void require_possible(const GptConfig& c, const fs::path& path, double elements) {
  const auto refuse = [&](const std::string& what) {
    fail(ExitCode::data, "checkpoint",
         "{}: the entry 'model' describes an impossible model: {}; use another checkpoint", path.string(), what);
  };
  const std::int64_t experts = std::max<std::int64_t>(c.experts.count, 0);
  const std::pair<const char*, std::int64_t> sizes[] = {
      {"layers", c.layers},        {"heads", c.heads},         {"width", c.width},
      {"context", c.context},      {"vocab", c.vocab},         {"kv_heads", *c.kv_heads},
      {"ffn_width", *c.ffn_width}, {"moe_every", c.moe_every}, {"experts", experts + 1}};
  for (const auto& [name, size] : sizes) {
    if (size < 1 || size > std::numeric_limits<std::int32_t>::max())
      refuse(fmt::format("{} is {}; expected 1 to 2^31 - 1", name, size));
  }
  if (c.width % c.heads != 0 || c.heads % *c.kv_heads != 0)
    refuse(fmt::format("width is {}, heads is {} and kv_heads is {}; expected each a multiple of the next", c.width,
                       c.heads, *c.kv_heads));
  if (experts > 0 && (c.experts.top_k < 1 || c.experts.top_k > experts))
    refuse(fmt::format("top_k is {}; expected 1 to {}, the experts", c.experts.top_k, experts));
  const auto number = [](std::int64_t n) { return static_cast<double>(n); };
  const double learned = c.positions == PositionEncoding::learned ? number(c.context) : 0;
  const double mlps = number(c.layers - c.mixtures()) + number(c.mixtures()) * number(experts);
  const double needed = number(c.width) * (number(c.vocab) + learned + 2 * number(c.layers) * number(c.width) +
                                           2 * mlps * number(*c.ffn_width));
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

Settings settings_of(const nlohmann::json& model) {
  const auto experts = model.find("experts");  // a model without experts has no such entry
  Settings values = {{"--experts", experts == model.end() ? "0" : setting_text(experts->at("count"))},
                     {"--document-mask", model.contains("document_separator") ? "on" : "off"}};
  Settings derived;
  for (const auto& [key, value] : model.items()) {
    if (key == "experts") continue;
    Settings& list = key == "kv_heads" || key == "ffn_width" ? derived : values;
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
    require_possible(stored.config, path, elements);
    return stored;
  });
}

}  // namespace trireme
