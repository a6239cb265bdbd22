#include "train/runs/run_texts.h"

#include <algorithm>
#include <array>
#include <ctime>

#include "data/json.h"
#include "data/tokenizer.h"
#include "data/utf8.h"
#include "train/program/version.h"
#include "train/runs/data_list.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using checkpoint::Checkpoint;

// ---- writing --------------------------------------------------------------------------------------------------------

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
  if (progress.loss) json["loss"] = *progress.loss;
  if (progress.loss_scale) json["loss_scale"] = loss_scale_json(*progress.loss_scale);
  if (!(progress.guards == GuardState{})) json["guards"] = guards_json(progress.guards);
  return json;
}

/// "2026-01-31 12:00:00 UTC by Trireme 0.1.0, commit 0123456789".
std::string written_now() {
  std::array<char, 64> time{};
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  std::strftime(time.data(), time.size(), "%Y-%m-%d %H:%M:%S UTC", &utc);
  return fmt::format("{} by Trireme {}", time.data(), version_line());
}

nlohmann::json data_json(const RunIdentity& run) { return {{"hash", run.data}, {"val_fraction", run.val_fraction}}; }

// ---- reading --------------------------------------------------------------------------------------------------------

fs::path where(const Checkpoint& saved) { return saved.path() / checkpoint::manifest_name; }

/// Passes the JSON of an entry to `read`. Missing or wrongly typed fields throw ExitCode::data.
template <class Read>
auto read_json(const Checkpoint& saved, const std::string& key, const Read& read) {
  const nlohmann::json json = parse_json(saved.run(key), where(saved));
  try {
    return read(json);
  } catch (const nlohmann::json::exception& error) {
    fail(ExitCode::data, "checkpoint", "{}: the entry '{}' is malformed: {}; resume from another checkpoint",
         where(saved).string(), key, error.what());
  }
}

optim::LossScaler::State read_loss_scale(const nlohmann::json& json, const fs::path& path) {
  const optim::LossScaler::State state = {.scale = json.at("scale"),
                                          .good_updates = json_count(json, "good_updates", path),
                                          .overflows_left = json_count(json, "overflows_left", path),
                                          .in_a_row = json_count(json, "in_a_row", path),
                                          .skipped = json_count(json, "skipped", path)};
  if (!(state.scale > 0))
    fail(ExitCode::data, "checkpoint", "{}: the loss scale is {}; expected more than 0; resume from another checkpoint",
         path.string(), state.scale);
  return state;
}

GuardState read_guards(const nlohmann::json& json, const fs::path& path) {
  GuardState guards{.skipped = {}, .rollbacks = json_count(json, "rollbacks", path), .losses = json.at("losses")};
  for (const nlohmann::json& s : json.at("skipped"))
    guards.skipped.push_back({.first = json_count(s, "first", path),
                              .last = json_count(s, "last", path),
                              .step = json_count(s, "step", path)});
  return guards;
}

void require_same(std::string_view flag, const std::string& saved, const std::string& asked, const fs::path& path) {
  if (saved == asked) return;
  fail(ExitCode::usage, "resume", "{} was saved with {} {}, and this run has {}; change {} or start without --resume",
       path.string(), flag, saved, asked, flag);
}

using Settings = std::vector<Model::Setting>;

std::string value_of(const Settings& values, const std::string& flag) {
  const auto found = std::find_if(values.begin(), values.end(), [&](const auto& value) { return value.first == flag; });
  return found == values.end() ? "none" : found->second;
}

void require_same_architecture(const Checkpoint& saved, const Model& model) {
  const fs::path& path = saved.path();
  if (const std::string saved_as = saved_architecture(saved); saved_as != model.architecture())
    fail(ExitCode::usage, "resume",
         "{} holds a model of the architecture '{}', and this program's model is '{}'; resume "
         "another run, or start without --resume",
         path.string(), saved_as, model.architecture());
}

/// Throws for the first field of the model that differs.
void require_same_model(const Checkpoint& saved, const Model& model) {
  const fs::path& path = saved.path();
  const Settings was = model.settings(saved.run("model"), where(saved).string()),
                 is = model.settings(model.configuration(), path.string());
  for (const auto& [flag, value] : is) require_same(flag, value_of(was, flag), value, path);
  for (const auto& [flag, value] : was) require_same(flag, value, value_of(is, flag), path);
}

/// The model with which a run began, by its RunIdentity::usage; empty: none.
std::string base_of(const std::string& usage, const fs::path& path) {
  if (usage.empty()) return "";
  const nlohmann::json json = parse_json(usage, path);
  const auto base = json.find("base");
  return base != json.end() && base->is_string() ? base->get<std::string>() : "";
}

/// A run that began with a model of --init-from, and goes on without the flag, has another tokenizer and other sizes.
void require_base(const Checkpoint& saved, const Model& model, const RunIdentity& run) {
  const fs::path& path = saved.path();
  const RunTexts& texts = saved.manifest().run;
  const auto usage = texts.find(usage_entry);
  const std::string base = usage == texts.end() ? "" : base_of(usage->second, where(saved));
  if (base.empty() || !base_of(run.usage, path).empty()) return;
  if (saved.run("tokenizer") == run.tokenizer && saved.run("model") == model.configuration()) return;
  fail(ExitCode::usage, "resume",
       "{} belongs to a run that began with --init-from {}, and this run has no --init-from; expected the same model; "
       "add --init-from {}",
       path.string(), safe_text(base), safe_text(base));
}

/// The first file of --data that is not as it was, or `otherwise`.
std::string what_differs(const fs::path& checkpoint, const RunIdentity& run, const char* otherwise) {
  const std::string difference = difference_to_saved(checkpoint, run.files);
  return difference.empty() ? otherwise : difference;
}

void require_same_data(const nlohmann::json& saved, const RunIdentity& run, const fs::path& path) {
  require_same("--val-fraction", saved.at("val_fraction").dump(), nlohmann::json(run.val_fraction).dump(), path);
  if (saved.at("hash").get<std::uint64_t>() == run.data) return;
  fail(ExitCode::usage, "resume",
       "{} was saved by a run on other data: {}; expected the same tokens; change --data, or the flag that differs, or "
       "start without --resume",
       path.string(), what_differs(path, run, "text, tokenizer (--tokenizer), --chat-template or --packing differ"));
}

}  // namespace

void GuardState::skip(SkippedSamples samples) {
  if (!skipped.empty() && skipped.back().last + 1 == samples.first && skipped.back().step == samples.step)
    skipped.back().last = samples.last;
  else
    skipped.push_back(samples);
}

std::string saved_architecture(const Checkpoint& saved) {
  const RunTexts& texts = saved.manifest().run;
  const auto found = texts.find(architecture_entry);
  return found == texts.end() ? "gpt" : found->second;  // older versions had only this one
}

RunTexts describe_run(const Model& model, const Progress& progress, const RunIdentity& run,
                      const std::string& optimizer, const std::string& configuration) {
  RunTexts texts = {{architecture_entry, model.architecture()},
                    {dtype_entry, std::string(name(model.dtype()))},
                    {"model", model.configuration()},
                    {"progress", progress_json(progress).dump()},
                    {"seed", std::to_string(run.seed)},
                    {"data", data_json(run).dump()},
                    {"tokenizer", run.tokenizer},
                    {written_entry, written_now()}};
  if (!progress.origin.empty()) texts[origin_entry] = progress.origin;
  if (!optimizer.empty()) texts[optimizer_entry] = optimizer;
  if (!configuration.empty()) texts[configuration_entry] = configuration;
  if (!run.usage.empty()) texts[usage_entry] = run.usage;
  return texts;
}

void require_same_run(const Checkpoint& saved, const Model& model, const RunIdentity& run) {
  const fs::path& path = saved.path();
  require_same_architecture(saved, model);
  const RunTexts& texts = saved.manifest().run;
  if (const auto dtype = texts.find(dtype_entry); dtype != texts.end())
    require_same("--dtype", safe_text(dtype->second), std::string(name(model.dtype())), path);
  require_base(saved, model, run);
  // Checked before the model, because the model's --vocab follows from the data.
  if (saved.run("tokenizer") != run.tokenizer)
    fail(ExitCode::usage, "resume",
         "{} was saved with another tokenizer than this data gives: {}; use the same --data and --tokenizer",
         path.string(), what_differs(path, run, "text or flags differ"));
  require_same_model(saved, model);
  require_same("--seed", safe_text(saved.run("seed")), std::to_string(run.seed), path);
  if (run.data != 0)
    read_json(saved, "data", [&](const nlohmann::json& json) {
      require_same_data(json, run, path);
      return 0;
    });
}

namespace {

bool stores_state(const Checkpoint& saved, const std::string& kind) {
  const std::string prefix = fmt::format("optimizer.{}.", kind);
  const auto first = saved.manifest().tensors.lower_bound(prefix);
  return first != saved.manifest().tensors.end() && first->first.starts_with(prefix);
}

bool has_moment(const optim::Optimizer& optimizer, const std::string& moment) {
  const std::vector<std::string>& moments = optimizer.moment_names();
  return std::find(moments.begin(), moments.end(), moment) != moments.end();
}

}  // namespace

std::string dropped_state(const Checkpoint& saved, const optim::Optimizer& optimizer) {
  std::string what;
  if (stores_state(saved, "ema") && !optimizer.averages()) what = "an average of the weights (--ema-decay)";
  if (stores_state(saved, "momentum") && !has_moment(optimizer, "momentum"))
    what += fmt::format("{}momentum (--momentum)", what.empty() ? "" : " and ");
  if (what.empty()) return {};
  return fmt::format("{} stores {}, which this run does not keep: its checkpoints will not have it",
                     saved.path().string(), what);
}

void require_same_optimizer(const Checkpoint& saved, optim::Optimizer& optimizer) {
  const RunTexts& texts = saved.manifest().run;
  if (const auto found = texts.find(optimizer_entry); found != texts.end())
    require_same("--optimizer", safe_text(found->second), optimizer.name(), saved.path());
  const auto& tensors = saved.manifest().tensors;
  const auto stores = [&](const std::string& moment) { return stores_state(saved, moment); };
  const auto stored_in_bf16 = [&](const std::string& moment) {
    const auto first = tensors.lower_bound(fmt::format("optimizer.{}.", moment));
    return first->second.dtype == DType::bf16;
  };
  const auto dtype = [](bool in_bf16) { return in_bf16 ? "bf16" : "f32"; };
  for (const std::string& moment : optimizer.moment_names())
    if (stores(moment))
      require_same("--moments", dtype(stored_in_bf16(moment)), dtype(optimizer.stores_moments_in_bf16()), saved.path());
  if (optimizer.averages() && !stores("ema")) require_same("--ema-decay", "none", "an average", saved.path());
  const std::vector<StateTensor> state = optimizer.state();
  const bool has_momentum = std::ranges::find(state, "momentum", &StateTensor::name) != state.end();
  if (has_momentum && !stores("momentum")) require_same("--momentum", "0", "more", saved.path());
}

Progress read_progress(const Checkpoint& saved) {
  const RunTexts& texts = saved.manifest().run;
  return read_json(saved, "progress", [&](const nlohmann::json& json) {
    Progress progress{.steps = json_count(json, "steps", where(saved)),
                      .samples = json_count(json, "samples", where(saved))};
    if (progress.steps != saved.manifest().step)
      fail(ExitCode::data, "checkpoint",
           "{}: its step is {}, and its progress {} steps; expected the same; resume from another checkpoint",
           where(saved).string(), saved.manifest().step, progress.steps);
    if (json.contains("loss") && json.at("loss").is_number()) progress.loss = json.at("loss").get<double>();
    if (json.contains("loss_scale")) progress.loss_scale = read_loss_scale(json.at("loss_scale"), where(saved));
    if (json.contains("guards")) progress.guards = read_guards(json.at("guards"), where(saved));
    if (const auto origin = texts.find(origin_entry); origin != texts.end()) progress.origin = origin->second;
    return progress;
  });
}

void require_whole_run(const Checkpoint& saved) {
  static_cast<void>(read_progress(saved));
  static_cast<void>(parse_json(saved.run("model"), where(saved)));
  if (!saved.run("tokenizer").empty()) static_cast<void>(parse_tokenizer(saved.run("tokenizer"), where(saved)));
  const std::string& seed = saved.run("seed");
  if (seed.empty() || seed.find_first_not_of("0123456789") != std::string::npos)
    fail(ExitCode::data, "checkpoint",
         "{}: the entry 'seed' is {}; expected a whole number; resume from another checkpoint", where(saved).string(),
         in_quotes(seed));
  read_json(saved, "data", [](const nlohmann::json& json) {
    static_cast<void>(json.at("hash").get<std::uint64_t>());
    static_cast<void>(json.at("val_fraction").get<double>());
    return 0;
  });
}

}  // namespace trireme
