#include "ops/tracking/run_metrics.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "parallel/mesh/mesh.h"
#include "train/events/event_stream.h"

namespace trireme {
namespace {

/// A value as the format writes it.
std::string text_of(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}
std::string text_of(std::int64_t value) { return fmt::format("{}", value); }

std::string escaped(std::string_view label_value) {
  std::string text;
  for (const char c : label_value) {
    if (c == '\n') {
      text += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') text += '\\';
    text += c;
  }
  return text;
}

class Page {
 public:
  template <class T>
  void gauge(std::string_view name, std::string_view help, T value, std::string_view labels = "") {
    head(name, help, "gauge");
    line(name, labels, text_of(value));
  }
  template <class T>
  void gauge(std::string_view name, std::string_view help, const std::optional<T>& value) {
    if (value) gauge(name, help, *value);
  }
  void counter(std::string_view name, std::string_view help, std::int64_t value) {
    head(name, help, "counter");
    line(name, "", text_of(value));
  }
  /// A summary without quantiles: from its two counters follows the mean over any time.
  void sum_and_count(std::string_view name, std::string_view help, double sum, std::int64_t count) {
    head(name, help, "summary");
    line(fmt::format("{}_sum", name), "", text_of(sum));
    line(fmt::format("{}_count", name), "", text_of(count));
  }
  /// The lines of a gauge for each rank follow with rank_line().
  void rank_gauge(std::string_view name, std::string_view help) { head(name, help, "gauge"); }
  void rank_line(std::string_view name, int rank, int work, double value) {
    line(name, fmt::format("{{rank=\"{}\",work=\"{}\"}}", rank, work), text_of(value));
  }
  std::string finish() { return std::move(text_); }

 private:
  void head(std::string_view name, std::string_view help, std::string_view type) {
    text_ += fmt::format("# HELP trireme_{0} {1}\n# TYPE trireme_{0} {2}\n", name, help, type);
  }
  void line(std::string_view name, std::string_view labels, std::string_view value) {
    text_ += fmt::format("trireme_{}{} {}\n", name, labels, value);
  }
  std::string text_;
};

std::string labels_text(const std::vector<LabelledValue>& labels) {
  std::string text;
  for (const auto& [name, value] : labels)
    text += fmt::format("{}{}=\"{}\"", text.empty() ? "{" : ",", name, escaped(value));
  return text.empty() ? "" : text + "}";
}

template <class T>
std::optional<double> seconds_of(const std::optional<T>& milliseconds) {
  if (!milliseconds) return std::nullopt;
  return static_cast<double>(*milliseconds) / 1e3;
}

/// Seconds a step that a rank itself worked; the mean over the steps that its page holds. Nothing before the first.
std::optional<double> working_seconds(const watch::RankPage& page) {
  double sum = 0;
  int steps = 0;
  for (const auto& entry : page.times) {
    const auto times = entry.read();
    if (!times || times->step < 0) continue;
    for (const Phase phase : {Phase::data, Phase::forward, Phase::backward, Phase::optimizer})
      sum += static_cast<double>(times->seconds[static_cast<std::size_t>(phase)]);
    ++steps;
  }
  return steps > 0 ? std::optional(sum / steps) : std::nullopt;
}

void add_ranks(Page& page, const watch::RankPages& pages) {
  constexpr std::string_view name = "rank_working_seconds";
  page.rank_gauge(name,
                  "A step's time without waiting for other ranks, mean over a rank's last 16 steps. Ranks with equal "
                  "'work' do the same.");
  for (int rank = 0; rank < pages.ranks(); ++rank) {
    if (!pages.visible(rank)) continue;
    if (const auto seconds = working_seconds(pages.page(rank)))
      page.rank_line(name, rank, pages.page(rank).work, *seconds);
  }
}

}  // namespace

void RunMetrics::apply(const Event& event, double now) {
  std::visit(Match{[&](const RunBegan& run) { apply(run); },
                   [&](const StepMade& made) {
                     step_ = made.step;
                     step_time_ = now;
                     ++steps_made_;
                     seconds_stepping_ += made.seconds;
                   },
                   [&](const StepLogged& logged) { record_ = logged.record; },
                   [&](const Validated& validated) { validation_loss_ = validated.loss; },
                   [&](const Saved& saved) {
                     saved_step_ = saved.step;
                     saved_time_ = now;
                   },
                   [&](const RolledBack& back) {
                     step_ = back.step;
                     ++rollbacks_;
                   },
                   [&](const Said& said) { warnings_ += said.level == Said::Level::warning ? 1 : 0; },
                   [&](const RunEnded&) { ended_ = true; }, [](const auto&) {}},
             event);
}

void RunMetrics::apply(const RunBegan& run) {
  step_ = run.first_step;
  last_step_ = run.steps;
  labels_.clear();
  labels_.emplace_back("out", run.out);
  const auto config = nlohmann::json::parse(run.config, nullptr, false);
  if (!config.is_object()) return;
  for (const char* flag : {"task", "model", "mesh", "pipeline", "zero", "dtype", "device", "optimizer"}) {
    const auto found = config.find(flag);
    if (found == config.end() || found->is_null()) continue;
    labels_.emplace_back(flag, found->is_string() ? found->get<std::string>() : found->dump());
    if (labels_.back().first == "mesh") world_size_ = parse_mesh(labels_.back().second, 0).ranks();
  }
}

std::string RunMetrics::page(const watch::RankPages* pages) const {
  Page page;
  page.gauge("info", "1. The labels say what runs.", std::int64_t{1}, labels_text(labels_));
  page.gauge("world_size", "Ranks of the job.", world_size_);
  page.gauge("steps_wanted", "The last step's number, --steps.", last_step_);
  page.gauge("step", "Steps made, those before a resume included; a rollback lowers it.", step_);
  if (steps_made_ > 0) {
    page.gauge("last_step_timestamp_seconds", "When the last step was made.", step_time_);
    page.sum_and_count("step_seconds", "Time of the steps that this start made, without evaluation and saving.",
                       seconds_stepping_, steps_made_);
  }
  if (record_) {
    page.gauge("loss", "Training loss of the last logged step.", record_->loss);
    page.gauge("learning_rate", "Of the last logged step.", record_->lr);
    page.gauge("gradient_norm", "Of the last logged step, before clipping.", record_->grad_norm);
    page.gauge("tokens", "Tokens, or other targets, since the start of the run.", record_->tokens);
    page.gauge("tokens_per_second", "Mean over the last logged steps.", record_->tokens_per_s);
    page.gauge("skipped_steps", "Steps skipped because of an overflow in f16.", record_->skipped);
    page.gauge("loss_scale", "In f16: of the next step.", record_->loss_scale);
    page.gauge("exposed_communication_seconds", "A step's, mean over the last logged steps, on the first rank.",
               seconds_of(record_->comm_exposed_ms));
    page.gauge("memory_peak_bytes", "Most memory that tensors of the first rank have used at once.",
               record_->peak_bytes);
  }
  page.gauge("validation_loss", "The newest one.", validation_loss_);
  if (saved_step_) {
    page.gauge("checkpoint_step", "Step of the newest checkpoint of this start.", saved_step_);
    page.gauge("checkpoint_timestamp_seconds", "When it was complete.", saved_time_);
  }
  page.counter("rollbacks_total", "Rollbacks to a checkpoint.", rollbacks_);
  page.counter("warnings_total", "Warnings to the user.", warnings_);
  page.gauge("ended", "1 when the run has ended without an error.", std::int64_t{ended_ ? 1 : 0});
  if (pages != nullptr) add_ranks(page, *pages);
  return page.finish();
}

}  // namespace trireme
