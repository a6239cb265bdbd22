#include "models/gpt_text.h"

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "models/settings.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// ---- writing --------------------------------------------------------------------------------------------------------

nlohmann::json experts_json(const nn::ExpertsOptions& o) {
  nlohmann::json json = {{"count", o.count},
                         {"top_k", o.top_k},
                         {"shared", o.shared},
                         {"aux_loss", o.aux_loss},
                         {"z_loss", o.z_loss},
                         {"bias_update", o.bias_update},
                         {"router_norm", o.norm == nn::RouterNorm::before ? "before" : "after"},
                         {"aux_scope", o.balance == nn::BalanceScope::sequence ? "sequence" : "batch"}};
  if (o.capacity_factor) json["capacity_factor"] = *o.capacity_factor;
  return json;
}

nlohmann::json gpt_json(const GptConfig& c, DType dtype) {
  nlohmann::json json = {{"layers", c.layers},
                         {"heads", c.heads},
                         {"kv_heads", c.key_value_heads()},
                         {"width", c.width},
                         {"ffn_width", c.hidden()},
                         {"context", c.context},
                         {"vocab", c.vocab},
                         {"dropout", c.dropout},
                         {"bias", c.bias},
                         {"activation", name(c.activation)},
                         {"norm", name(c.norm)},
                         {"positions", name(c.positions)},
                         {"tied", c.tied},
                         {"dtype", name(dtype)}};
  if (c.document_separator) json["document_separator"] = *c.document_separator;
  if (c.experts.count > 0) {
    json["experts"] = experts_json(c.experts);
    json["moe_every"] = c.moe_every;
  }
  return json;
}

// ---- reading --------------------------------------------------------------------------------------------------------

/// The value whose name is stored under `key`.
template <class E>
E named(const nlohmann::json& json, const char* key, std::initializer_list<E> values, const fs::path& path) {
  for (const E value : values) {
    if (json.at(key) == name(value)) return value;
  }
  fail(ExitCode::data, "checkpoint", "{}: '{}' is {}, which this program does not know", path.string(), key,
       json.at(key).dump());
}

/// A model without experts has no such entry.
nn::ExpertsOptions read_experts(const nlohmann::json& model, const fs::path& path) {
  nn::ExpertsOptions experts;
  if (!model.contains("experts")) return experts;
  const nlohmann::json& json = model["experts"];
  experts.count = json_count(json, "count", path);
  experts.top_k = json_count(json, "top_k", path);
  experts.shared = json_count(json, "shared", path);
  if (json.contains("capacity_factor")) experts.capacity_factor = json["capacity_factor"].get<double>();
  experts.aux_loss = json.at("aux_loss");
  experts.z_loss = json.at("z_loss");
  experts.bias_update = json.at("bias_update");
  experts.norm = json.at("router_norm") == "after" ? nn::RouterNorm::after : nn::RouterNorm::before;
  experts.balance = json.at("aux_scope") == "batch" ? nn::BalanceScope::batch : nn::BalanceScope::sequence;
  return experts;
}

GptConfig read_config(const nlohmann::json& json, const fs::path& path) {
  GptConfig config = {.layers = json_count(json, "layers", path),
                      .heads = json_count(json, "heads", path),
                      .width = json_count(json, "width", path),
                      .context = json_count(json, "context", path),
                      .vocab = json_count(json, "vocab", path),
                      .dropout = json.at("dropout"),
                      .bias = json.at("bias")};
  config.activation = named(json, "activation", {Activation::gelu, Activation::gelu_tanh, Activation::swiglu}, path);
  config.norm = named(json, "norm", {Norm::layer, Norm::rms}, path);
  config.positions = named(json, "positions", {PositionEncoding::learned, PositionEncoding::rope}, path);
  config.tied = json.at("tied");
  config.kv_heads = json_count(json, "kv_heads", path);
  config.ffn_width = json_count(json, "ffn_width", path);
  config.experts = read_experts(json, path);
  if (config.experts.count > 0) config.moe_every = json_count(json, "moe_every", path);
  if (json.contains("document_separator")) config.document_separator = json_count(json, "document_separator", path);
  return config;
}

/// Throws unless a model of these sizes can be built and its matrices alone have no more elements than are stored.
/// Otherwise a made-up size would be found only when memory runs out.
void require_possible(const GptConfig& c, const fs::path& path, double elements) {
  const auto refuse = [&](const std::string& what) {
    fail(ExitCode::data, "checkpoint", "{}: the entry 'model' cannot be: {}", path.string(), what);
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

DType read_dtype(const nlohmann::json& json) {
  const std::string dtype = json.value("dtype", "f32");
  return dtype == "bf16" ? DType::bf16 : dtype == "f16" ? DType::f16 : DType::f32;
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
    StoredGpt stored{.config = read_config(json, path), .dtype = read_dtype(json)};
    require_possible(stored.config, path, elements);
    return stored;
  });
}

}  // namespace trireme
