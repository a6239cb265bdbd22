#include "train/terminal/terminal_sink.h"

#include "train/events/texts.h"
#include "train/report/report.h"

namespace trireme {

void TerminalSink::receive(const Event& event) {
  std::visit([this](const auto& happened) { show(happened); }, event);
}

void TerminalSink::show(const RunPlanned& planned) {
  std::vector<LabelledValue> rows = planned.rows;
  rows.insert(rows.end(), planned.details.begin(), planned.details.end());
  screen_.print(aligned_lines(rows));
}

void TerminalSink::show(const RunBegan& began) { run_ = began; }

void TerminalSink::show(const StepLogged& logged) {
  const StepRecord& record = logged.record;
  const double left = static_cast<double>(run_.steps - record.step) * record.step_ms / 1e3;
  screen_.print(step_line(record, run_.steps, run_.rate_unit, left));
}

void TerminalSink::show(const Validated& validated) {
  screen_.print(validation_line(validated, run_.steps), Style::bold);
}

void TerminalSink::show(const Sampled& sampled) { screen_.print(sample_block(sampled)); }

void TerminalSink::show(const Saved& saved) {
  screen_.print(saved_line(saved), saved.warning.empty() ? Style::plain : Style::warning);
}

void TerminalSink::show(const Said& said) {
  screen_.print(said.text, said.level == Said::Level::warning ? Style::warning : Style::plain);
}

void TerminalSink::show(const RunEnded& ended) {
  screen_.end_live();
  screen_.print(time_table(ended.phases, ended.wall_seconds, ended.steps));
}

}  // namespace trireme
