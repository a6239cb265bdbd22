#include "train/events/metrics.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

namespace trireme {
namespace {

/// Builds {"key":value,...} in the order of the calls.
class JsonLine {
 public:
  void add(const char* key, std::int64_t value) { member(key, fmt::format("{}", value)); }
  // {} prints the shortest text that reads back as the same double.
  void add(const char* key, double value) { member(key, std::isfinite(value) ? fmt::format("{}", value) : "null"); }
  void add(const char* key, const std::vector<std::pair<std::string, double>>& values) {
    JsonLine inner;
    for (const auto& [name, value] : values) {
      const nlohmann::json text(name);
      const std::string quoted = text.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
      inner.add(quoted.substr(1, quoted.size() - 2).c_str(), value);
    }
    member(key, inner.finish());
  }
  std::string finish() { return text_.empty() ? "{}" : text_ + "}"; }

 private:
  void member(const char* key, const std::string& value) {
    text_ += fmt::format("{}\"{}\":{}", text_.empty() ? "{" : ",", key, value);
  }
  std::string text_;
};

}  // namespace

void StepRecord::set_times(const PhaseTimes::Lap& lap, std::int64_t tokens_per_step) {
  step_ms = lap.step_ms;
  tokens_per_s = lap.step_ms > 0 ? static_cast<double>(tokens_per_step) * 1e3 / lap.step_ms : 0;
  data_ms = lap.ms_of(Phase::data);
  forward_ms = lap.ms_of(Phase::forward);
  backward_ms = lap.ms_of(Phase::backward);
  optimizer_ms = lap.ms_of(Phase::optimizer);
}

void StepRecord::set_communication(const CommunicationTimes& sums, std::int64_t steps) {
  const double to_ms = 1e3 / static_cast<double>(std::max<std::int64_t>(steps, 1));
  comm_ms = sums.seconds * to_ms;
  comm_exposed_ms = sums.exposed_seconds * to_ms;
}

void StepRecord::set_routing(const nn::RoutingReport& report, const nn::ExpertsOptions& experts) {
  if (experts.aux_loss > 0) aux_loss = report.balance;
  if (experts.z_loss > 0) z_loss = report.z;
  expert_imbalance = report.imbalance;
}

std::string to_json_line(const StepRecord& r) {
  JsonLine line;
  for_each_value(r, [&line](const char* key, auto value) { line.add(key, value); });
  if (!r.epochs.empty()) line.add("epochs", r.epochs);
  return line.finish();
}

std::string first_steps(const std::string& lines, std::int64_t steps) {
  constexpr std::string_view key = "{\"step\":";  // how every line begins
  std::string kept;
  for (std::size_t begin = 0; begin < lines.size();) {
    const std::size_t end = std::min(lines.find('\n', begin), lines.size() - 1) + 1;
    const std::string_view line = std::string_view(lines).substr(begin, end - begin);
    std::int64_t step = 0;
    const bool ours = line.starts_with(key) &&
                      std::from_chars(line.data() + key.size(), line.data() + line.size(), step).ec == std::errc();
    if (ours && step <= steps) kept += line;
    begin = end;
  }
  return kept;
}

}  // namespace trireme
