#include "train/events/event_json.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "train/events/event_stream.h"
#include "train/program/units.h"

namespace trireme {
namespace {

using Json = nlohmann::ordered_json;

/// The number that a text such as "1,234,567" is.
std::optional<std::int64_t> count_in(const std::string& text) {
  std::string digits = text;
  std::erase(digits, ',');
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc{} || end != digits.data() + digits.size() || thousands(number) != text) return std::nullopt;
  return number;
}

Json rows_json(const std::vector<LabelledValue>& rows) {
  Json json = Json::object();
  for (const auto& [label, value] : rows) {
    const std::optional<std::int64_t> number = count_in(value);
    json[label] = number ? Json(*number) : Json(value);
  }
  return json;
}

Json json_of(const RunPlanned& e) {
  return {{"event", "run_planned"}, {"rows", rows_json(e.rows)}, {"details", rows_json(e.details)}};
}

Json json_of(const RunBegan& e) {
  return {{"event", "run_began"}, {"first_step", e.first_step},
          {"steps", e.steps},     {"rate_unit", e.rate_unit},
          {"out", e.out},         {"config", e.config.empty() ? Json::object() : Json::parse(e.config)}};
}

Json json_of(const StepMade&) { return {}; }
Json json_of(const Activity&) { return {}; }

/// The keys are those of metrics.jsonl.
Json json_of(const StepLogged& e) {
  Json json = {{"event", "step_logged"}, {"evaluated", e.evaluated}};
  json.update(Json::parse(to_json_line(e.record)));
  return json;
}

Json json_of(const Validated& e) {
  return {
      {"event", "validated"}, {"step", e.step}, {"val_loss", e.loss}, {"meaning", e.meaning}, {"seconds", e.seconds}};
}

Json json_of(const Sampled& e) {
  return {{"event", "sampled"}, {"step", e.step}, {"text", e.text}, {"seconds", e.seconds}};
}

Json json_of(const Saved& e) {
  Json json = {{"event", "saved"}, {"step", e.step},       {"path", e.path},
               {"bytes", e.bytes}, {"seconds", e.seconds}, {"stall_seconds", e.stall_seconds},
               {"best", e.best}};
  if (e.asked) json["asked"] = true;
  if (!e.warning.empty()) json["warning"] = e.warning;
  return json;
}

Json json_of(const RolledBack& e) { return {{"event", "rolled_back"}, {"step", e.step}}; }

Json json_of(const Said& e) {
  return {{"event", "said"}, {"level", e.level == Said::Level::warning ? "warning" : "info"}, {"text", e.text}};
}

Json json_of(const RunEnded& e) {
  Json phases = Json::object();
  for (std::size_t i = 0; i < e.phases.size(); ++i) phases[name(static_cast<Phase>(i))] = e.phases[i];
  Json memory = Json::object();
  for (const MemoryRow& row : e.memory) memory[row.what] = {{"predicted", row.predicted}, {"measured", row.measured}};
  return {{"event", "run_ended"},           {"steps", e.steps},        {"last_step", e.last_step},
          {"wall_seconds", e.wall_seconds}, {"phase_seconds", phases}, {"memory_bytes", memory}};
}

}  // namespace

std::string to_json_line(const Event& event) {
  const Json json = std::visit([](const auto& happened) { return json_of(happened); }, event);
  // ASCII: a terminal shows it as it is. Bytes that are not UTF-8, such as those of a path, become U+FFFD.
  return json.empty() ? "" : json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

}  // namespace trireme
