#include "train/run_texts.h"

#include <algorithm>
#include <limits>

#include "data/json.h"
#include "data/utf8.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using checkpoint::Checkpoint;

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

nlohmann::json model_json(const GptConfig& c, DType dtype) {
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

nlohmann::json loss_scale_json(const optim::LossScaler::State& s) {
  return {{"scale", s.scale},
          {"good_updates", s.good_updates},
          {"overflows_left", s.overflows_left},
          {"in_a_row", s.in_a_row},
          {"skipped", s.skipped}};
}

nlohmann::json guards_json(const GuardState& guards) {
  nlohmann::json json = {{"rollbacks", guards.rollbacks}, {"losses", guards.losses}};
  json["skipped"] = nlohmann::json::array();
  for (const SkippedSamples& s : guards.skipped)
    json["skipped"].push_back({{"first", s.first}, {"last", s.last}, {"step", s.step}});
  return json;
}

nlohmann::json progress_json(const Progress& progress) {
  nlohmann::json json = {{"steps", progress.steps}, {"samples", progress.samples}};
  if (progress.loss_scale) json["loss_scale"] = loss_scale_json(*progress.loss_scale);
  if (!(progress.guards == GuardState{})) json["guards"] = guards_json(progress.guards);
  return json;
}

nlohmann::json data_json(const RunIdentity& run) { return {{"hash", run.data}, {"val_fraction", run.val_fraction}}; }

// ---- reading --------------------------------------------------------------------------------------------------------

fs::path where(const Checkpoint& saved) { return saved.path() / checkpoint::manifest_name; }

/// The JSON of an entry, given to `read`; whatever is missing or of another type in it is bad data.
template <class Read>
auto read_json(const Checkpoint& saved, const std::string& key, const Read& read) {
  const nlohmann::json json = parse_json(saved.run(key), where(saved));
  try {
    return read(json);
  } catch (const nlohmann::json::exception& error) {
    fail(ExitCode::data, "checkpoint", "{}: the entry '{}' is malformed: {}", where(saved).string(), key, error.what());
  }
}

/// A count or a size: nothing that a run stores is negative, and up to 2^56 sums of them fit.
std::int64_t integer(const nlohmann::json& json, const char* key, const fs::path& path) {
  constexpr std::uint64_t most = std::uint64_t{1} << 56;
  if (!json.contains(key) || !json[key].is_number_unsigned() || json[key].get<std::uint64_t>() > most)
    fail(ExitCode::data, "checkpoint", "{}: '{}' is {}; expected a whole number, 0 to 2^56", path.string(), key,
         json.contains(key) ? shown(json[key]) : "missing");
  return json[key].get<std::int64_t>();
}

optim::LossScaler::State read_loss_scale(const nlohmann::json& json, const fs::path& path) {
  const optim::LossScaler::State state = {.scale = json.at("scale"),
                                          .good_updates = integer(json, "good_updates", path),
                                          .overflows_left = integer(json, "overflows_left", path),
                                          .in_a_row = integer(json, "in_a_row", path),
                                          .skipped = integer(json, "skipped", path)};
  if (!(state.scale > 0))
    fail(ExitCode::data, "checkpoint", "{}: the loss scale is {}; expected more than 0", path.string(), state.scale);
  return state;
}

GuardState read_guards(const nlohmann::json& json, const fs::path& path) {
  GuardState guards{.skipped = {}, .rollbacks = integer(json, "rollbacks", path), .losses = json.at("losses")};
  for (const nlohmann::json& s : json.at("skipped"))
    guards.skipped.push_back(
        {.first = integer(s, "first", path), .last = integer(s, "last", path), .step = integer(s, "step", path)});
  return guards;
}

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
  experts.count = integer(json, "count", path);
  experts.top_k = integer(json, "top_k", path);
  experts.shared = integer(json, "shared", path);
  if (json.contains("capacity_factor")) experts.capacity_factor = json["capacity_factor"].get<double>();
  experts.aux_loss = json.at("aux_loss");
  experts.z_loss = json.at("z_loss");
  experts.bias_update = json.at("bias_update");
  experts.norm = json.at("router_norm") == "after" ? nn::RouterNorm::after : nn::RouterNorm::before;
  experts.balance = json.at("aux_scope") == "batch" ? nn::BalanceScope::batch : nn::BalanceScope::sequence;
  return experts;
}

GptConfig read_config(const nlohmann::json& json, const fs::path& path) {
  GptConfig config = {.layers = integer(json, "layers", path),
                      .heads = integer(json, "heads", path),
                      .width = integer(json, "width", path),
                      .context = integer(json, "context", path),
                      .vocab = integer(json, "vocab", path),
                      .dropout = json.at("dropout"),
                      .bias = json.at("bias")};
  config.activation = named(json, "activation", {Activation::gelu, Activation::gelu_tanh, Activation::swiglu}, path);
  config.norm = named(json, "norm", {Norm::layer, Norm::rms}, path);
  config.positions = named(json, "positions", {PositionEncoding::learned, PositionEncoding::rope}, path);
  config.tied = json.at("tied");
  config.kv_heads = integer(json, "kv_heads", path);
  config.ffn_width = integer(json, "ffn_width", path);
  config.experts = read_experts(json, path);
  if (config.experts.count > 0) config.moe_every = integer(json, "moe_every", path);
  if (json.contains("document_separator")) config.document_separator = integer(json, "document_separator", path);
  return config;
}

/// Elements of the weights and buffers that are stored.
double stored_elements(const Checkpoint& saved) {
  double elements = 0;
  for (const auto& [name, tensor] : saved.manifest().tensors)
    if (!name.starts_with("optimizer.")) elements += static_cast<double>(tensor.shape.count());
  return elements;
}

/// A model of these sizes can be built, and its matrices alone are no more than what is stored: a size that is made up
/// would otherwise be found when memory runs out.
void require_possible(const GptConfig& c, const Checkpoint& saved) {
  const auto refuse = [&](const std::string& what) {
    fail(ExitCode::data, "checkpoint", "{}: the entry 'model' cannot be: {}", where(saved).string(), what);
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
  if (needed > stored_elements(saved))
    refuse(fmt::format("its matrices would have more than {:.0f} elements; expected at most {:.0f}, which are stored",
                       needed, stored_elements(saved)));
}

DType read_dtype(const nlohmann::json& json) {
  const std::string dtype = json.value("dtype", "f32");
  return dtype == "bf16" ? DType::bf16 : dtype == "f16" ? DType::f16 : DType::f32;
}

void require_same(std::string_view flag, const std::string& saved, const std::string& asked, const fs::path& path) {
  if (saved == asked) return;
  fail(ExitCode::usage, "resume", "{} was saved with {} {}, and this run has {}; change {} or start without --resume",
       path.string(), flag, saved, asked, flag);
}

/// What a flag of the command line would be given.
std::string value_text(const nlohmann::json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "on" : "off";
  return value.is_string() ? shown_lines(value.get<std::string>()) : shown(value);
}

std::string flag_of(const std::string& key) {
  std::string flag = "--" + (key == "shared" ? "shared-experts" : key);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

using FlagValues = std::vector<std::pair<std::string, std::string>>;

/// A model as the flags that make it, before those that follow from others where they are not given: a changed --width
/// changes --ffn-width.
FlagValues flag_values(const nlohmann::json& model) {
  const auto experts = model.find("experts");  // a model without experts has no such entry
  FlagValues values = {{"--experts", experts == model.end() ? "0" : value_text(experts->at("count"))},
                       {"--document-mask", model.contains("document_separator") ? "on" : "off"}};
  FlagValues derived;
  for (const auto& [key, value] : model.items()) {
    if (key == "experts") continue;
    FlagValues& list = key == "kv_heads" || key == "ffn_width" ? derived : values;
    list.emplace_back(flag_of(key), value_text(value));
  }
  if (experts != model.end())
    for (const auto& [key, value] : experts->items())
      if (key != "count") values.emplace_back(flag_of(key), value_text(value));
  values.insert(values.end(), derived.begin(), derived.end());
  return values;
}

std::string value_of(const FlagValues& values, const std::string& flag) {
  const auto found = std::find_if(values.begin(), values.end(), [&](const auto& value) { return value.first == flag; });
  return found == values.end() ? "none" : found->second;
}

/// The first flag of the model whose value differs.
void require_same_model(const nlohmann::json& saved, const nlohmann::json& asked, const fs::path& path) {
  const FlagValues was = flag_values(saved), is = flag_values(asked);
  for (const auto& [flag, value] : is) require_same(flag, value_of(was, flag), value, path);
  for (const auto& [flag, value] : was) require_same(flag, value, value_of(is, flag), path);
}

void require_same_data(const nlohmann::json& saved, const RunIdentity& run, const fs::path& path) {
  require_same("--val-fraction", saved.at("val_fraction").dump(), nlohmann::json(run.val_fraction).dump(), path);
  if (saved.at("hash").get<std::uint64_t>() == run.data) return;
  fail(ExitCode::usage, "resume",
       "{} was saved by a run on other data: text or tokenizer differ; expected the same tokens; change --data, or "
       "start without --resume",
       path.string());
}

}  // namespace

void GuardState::skip(SkippedSamples samples) {
  if (!skipped.empty() && skipped.back().last + 1 == samples.first && skipped.back().step == samples.step)
    skipped.back().last = samples.last;
  else
    skipped.push_back(samples);
}

RunTexts describe_run(const Gpt& model, const Progress& progress, const Tokenizer& tokenizer, const RunIdentity& run,
                      const std::string& configuration) {
  RunTexts texts = {{"model", model_json(model.config(), model.dtype()).dump()},
                    {"progress", progress_json(progress).dump()},
                    {"seed", std::to_string(run.seed)},
                    {"data", data_json(run).dump()},
                    {"tokenizer", tokenizer.to_json()}};
  if (!progress.origin.empty()) texts[origin_entry] = progress.origin;
  if (!configuration.empty()) texts["configuration"] = configuration;
  return texts;
}

void require_same_run(const Checkpoint& saved, const Gpt& model, const Tokenizer& tokenizer, const RunIdentity& run) {
  const fs::path& path = saved.path();
  // Before the model: its --vocab follows from the data.
  if (saved.run("tokenizer") != tokenizer.to_json())
    fail(ExitCode::usage, "resume",
         "{} was saved with another tokenizer than this data gives; use the same --data and --tokenizer",
         path.string());
  read_json(saved, "model", [&](const nlohmann::json& json) {
    require_same_model(json, model_json(model.config(), model.dtype()), path);
    return 0;
  });
  require_same("--seed", shown_lines(saved.run("seed")), std::to_string(run.seed), path);
  if (run.data != 0)
    read_json(saved, "data", [&](const nlohmann::json& json) {
      require_same_data(json, run, path);
      return 0;
    });
}

void require_same_optimizer(const Checkpoint& saved, const optim::Optimizer& optimizer) {
  const auto& tensors = saved.manifest().tensors;
  const auto stores = [&](const std::string& moment) {
    const std::string prefix = fmt::format("optimizer.{}.", moment);
    const auto first = tensors.lower_bound(prefix);
    return first != tensors.end() && first->first.starts_with(prefix);
  };
  const std::vector<std::string>& moments = optimizer.moment_names();
  const auto has = [&](const char* moment) {
    return std::find(moments.begin(), moments.end(), moment) != moments.end();
  };
  const auto name = [](bool adamw) { return adamw ? "adamw" : "sgd"; };
  require_same("--optimizer", name(stores("m")), name(has("m")), saved.path());
  if (has("momentum") && !stores("momentum")) require_same("--momentum", "0", "more", saved.path());
}

Progress read_progress(const Checkpoint& saved) {
  const RunTexts& texts = saved.manifest().run;
  return read_json(saved, "progress", [&](const nlohmann::json& json) {
    Progress progress{.steps = integer(json, "steps", where(saved)), .samples = integer(json, "samples", where(saved))};
    if (progress.steps != saved.manifest().step)
      fail(ExitCode::data, "checkpoint", "{}: its step is {}, and its progress {} steps; expected the same",
           where(saved).string(), saved.manifest().step, progress.steps);
    if (json.contains("loss_scale")) progress.loss_scale = read_loss_scale(json.at("loss_scale"), where(saved));
    if (json.contains("guards")) progress.guards = read_guards(json.at("guards"), where(saved));
    if (const auto origin = texts.find(origin_entry); origin != texts.end()) progress.origin = origin->second;
    return progress;
  });
}

SavedModel read_saved_model(const Checkpoint& saved) {
  return read_json(saved, "model", [&](const nlohmann::json& json) {
    SavedModel model{.config = read_config(json, where(saved)),
                     .dtype = read_dtype(json),
                     .tokenizer = parse_tokenizer(saved.run("tokenizer"), where(saved)),
                     .progress = read_progress(saved)};
    require_possible(model.config, saved);
    model.config.dropout = 0;
    return model;
  });
}

void require_whole_run(const Checkpoint& saved) {
  static_cast<void>(read_saved_model(saved));
  const std::string& seed = saved.run("seed");
  if (seed.empty() || seed.find_first_not_of("0123456789") != std::string::npos)
    fail(ExitCode::data, "checkpoint", "{}: the entry 'seed' is {}; expected a whole number", where(saved).string(),
         in_quotes(seed));
  read_json(saved, "data", [](const nlohmann::json& json) {
    static_cast<void>(json.at("hash").get<std::uint64_t>());
    static_cast<void>(json.at("val_fraction").get<double>());
    return 0;
  });
}

}  // namespace trireme
