#include "train/terminal/terminal_sink.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "train/events/texts.h"
#include "train/plot/braille.h"
#include "train/program/units.h"
#include "train/report/report.h"
#include "train/terminal/progress.h"

namespace trireme {
namespace {

/// A wider table is hard to read.
constexpr int widest_plan = 120;

std::string rate_text(double step_seconds) {
  if (step_seconds <= 0) return "?";
  return step_seconds < 1 ? fmt::format("{:.1f} steps/s", 1 / step_seconds)
                          : fmt::format("{:.1f} s/step", step_seconds);
}

}  // namespace

void TerminalSink::receive(const Event& event) {
  std::visit([this](const auto& happened) { show(happened); }, event);
}

void TerminalSink::show(const RunPlanned& planned) {
  const bool live = screen_.terminal().updates;
  std::vector<LabelledValue> rows = planned.rows;
  if (verbose_ || !live) rows.insert(rows.end(), planned.details.begin(), planned.details.end());
  screen_.print(aligned_lines(rows, live ? std::min(screen_.columns(), widest_plan) : 0));
}

void TerminalSink::show(const RunBegan& began) {
  run_ = began;
  step_ = began.first_step;
  curves_.name = began.out.empty() ? "this run" : began.out;
  show_progress();
}

void TerminalSink::show(const StepMade& made) {
  using namespace std::chrono_literals;
  eta_.stepped(made.seconds);
  step_ = made.step;
  if (Screen::Clock::now() - shown_at_ >= 100ms) show_progress();  // a step may take a millisecond
}

void TerminalSink::show(const StepLogged& logged) {
  peak_bytes_ = logged.record.peak_bytes;
  show_progress();
  if (std::isfinite(logged.record.loss))
    curves_.loss.push_back({static_cast<double>(logged.record.step), logged.record.loss});
  screen_.print(step_line(logged.record, run_.steps, run_.rate_unit, eta_.seconds_left(logged.record.step)));
}

void TerminalSink::show(const Validated& validated) {
  eta_.evaluated(validated.seconds);
  if (std::isfinite(validated.loss))
    curves_.validation.push_back({static_cast<double>(validated.step), validated.loss});
  screen_.print(validation_line(validated, run_.steps), Style::bold);
}

void TerminalSink::show(const Sampled& sampled) {
  eta_.sampled(sampled.seconds);
  screen_.print(sample_block(sampled));
}

void TerminalSink::show(const Saved& saved) {
  eta_.saved(saved.stall_seconds);
  screen_.print(saved_line(saved), saved.warning.empty() ? Style::plain : Style::warning);
}

void TerminalSink::show(const RolledBack& rolled) {
  step_ = rolled.step;
  for (std::vector<CurvePoint>* points : {&curves_.loss, &curves_.validation})
    std::erase_if(*points, [&](const CurvePoint& p) { return p.x > static_cast<double>(rolled.step); });
}

void TerminalSink::show(const Said& said) {
  screen_.print(said.text, said.level == Said::Level::warning ? Style::warning : Style::plain);
}

void TerminalSink::show(const RunEnded& ended) {
  screen_.end_live();
  show_curves();
  screen_.print(time_table(ended.phases, ended.wall_seconds, ended.steps));
}

void TerminalSink::show_curves() {
  constexpr std::size_t fewest_points = 3;
  if (!screen_.terminal().updates || curves_.loss.size() < fewest_points) return;
  screen_.print(draw_curves({curves_}, chart_size(screen_), screen_.terminal().unicode));
}

void TerminalSink::show_progress() {
  if (!screen_.terminal().updates) return;
  shown_at_ = Screen::Clock::now();
  std::vector<std::string> fields = {fmt::format("step {}/{}", step_, run_.steps)};
  if (eta_.step_seconds() > 0) {
    fields.push_back("eta " + format_duration(eta_.seconds_left(step_)));
    fields.push_back(rate_text(eta_.step_seconds()));
  }
  if (peak_bytes_) fields.push_back(format_bytes(static_cast<double>(*peak_bytes_)));
  const double fraction = static_cast<double>(step_) / static_cast<double>(std::max<std::int64_t>(run_.steps, 1));
  screen_.show_live([fraction, fields = std::move(fields), unicode = screen_.terminal().unicode](int columns) {
    return progress_line(fraction, fields, columns, unicode);
  });
}

}  // namespace trireme
