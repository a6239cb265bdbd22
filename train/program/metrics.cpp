#include "train/program/metrics.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

namespace trireme {
namespace {

/// Builds {"key":value,...} in the order of the calls.
class JsonLine {
 public:
  void add(const char* key, std::int64_t value) { member(key, fmt::format("{}", value)); }
  // {} prints the shortest text that reads back as the same double.
  void add(const char* key, double value) { member(key, std::isfinite(value) ? fmt::format("{}", value) : "null"); }
  template <class T>
  void add(const char* key, const std::optional<T>& value) {
    if (value) add(key, *value);
  }
  std::string finish() { return text_ + "}"; }

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
  line.add("step", r.step);
  line.add("loss", r.loss);
  line.add("lr", r.lr);
  line.add("grad_norm", r.grad_norm);
  line.add("tokens", r.tokens);
  line.add("tokens_per_s", r.tokens_per_s);
  line.add("step_ms", r.step_ms);
  line.add("val_loss", r.val_loss);
  line.add("skipped", r.skipped);
  line.add("loss_scale", r.loss_scale);
  line.add("aux_loss", r.aux_loss);
  line.add("z_loss", r.z_loss);
  line.add("expert_imbalance", r.expert_imbalance);
  line.add("forward_ms", r.forward_ms);
  line.add("backward_ms", r.backward_ms);
  line.add("optimizer_ms", r.optimizer_ms);
  line.add("data_ms", r.data_ms);
  line.add("comm_ms", r.comm_ms);
  line.add("comm_exposed_ms", r.comm_exposed_ms);
  line.add("peak_bytes", r.peak_bytes);
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
