#include "train/terminal/plain_sinks.h"

#include <fmt/core.h>

#include "train/events/event_json.h"
#include "train/events/texts.h"
#include "train/program/units.h"

namespace trireme {

void QuietSink::receive(const Event& event) {
  std::visit(Match{[this](const StepLogged& logged) { logged_ = logged; },
                   [this](const Validated& validated) { validated_ = validated; },
                   [this](const Saved& saved) {
                     saved_ = saved;
                     if (!saved.warning.empty()) screen_.print(saved_line(saved), Style::warning);
                   },
                   [this](const Said& said) {
                     if (said.level == Said::Level::warning) screen_.print(said.text, Style::warning);
                   },
                   [this](const RunEnded& ended) { print_result(ended); }, [](const auto&) {}},
             event);
}

/// "made 300 steps in 12s | step 300 | loss 2.1034 | validation loss 2.2010 | perplexity 9.03 | saved in PATH".
void QuietSink::print_result(const RunEnded& ended) {
  std::string text = fmt::format("made {} steps in {}", ended.steps, format_duration(ended.wall_seconds));
  if (!ended.last_step) text += ", until a signal";
  if (logged_) text += fmt::format(" | step {} | loss {:.4f}", logged_->record.step, logged_->record.loss);
  if (validated_ && (!logged_ || validated_->step == logged_->record.step)) {
    text += fmt::format(" | validation loss {:.4f}", validated_->loss);
    if (!validated_->meaning.empty()) text += " | " + validated_->meaning;
  }
  if (saved_) text += " | saved in " + saved_->path;
  screen_.print(text);
}

void JsonSink::receive(const Event& event) {
  if (const std::string line = to_json_line(event); !line.empty()) screen_.print(line);
}

}  // namespace trireme
