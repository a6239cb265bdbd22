#include "ops/terminal/terminal_sink.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "data/utf8.h"
#include "ops/plot/braille.h"
#include "train/program/progress.h"
#include "train/program/text_width.h"
#include "train/program/units.h"
#include "train/report/report.h"

namespace trireme {
namespace {

/// A wider table is hard to read.
constexpr int widest_plan = 120;

/// Before the first step.
const Activity starting{.name = "starting"};

std::string rate_text(double step_seconds) {
  if (step_seconds <= 0) return "?";
  return step_seconds < 1 ? fmt::format("{:.1f} steps/s", 1 / step_seconds)
                          : fmt::format("{:.1f} s/step", step_seconds);
}

/// "a | b | c" in lines of at most `columns`, where fields fit; those after the first are indented.
std::string broken_between_fields(std::string_view line, int columns) {
  constexpr std::string_view separator = " | ";
  std::string text;
  int used = 0;
  while (!line.empty()) {
    const std::size_t end = std::min(line.find(separator), line.size());
    const std::string_view field = line.substr(0, end);
    const int width = columns_of(field);
    if (text.empty()) {
      used = width;
    } else if (used + 3 + width > columns) {
      text += "\n  ";
      used = 2 + width;
    } else {
      text += separator;
      used += 3 + width;
    }
    text += field;
    line.remove_prefix(std::min(end + separator.size(), line.size()));
  }
  return text;
}

}  // namespace

/// On a terminal, lines that are too long are broken at words.
std::string TerminalSink::wrapped(const std::string& text) const {
  return on_terminal() ? wrapped_text(safe_text(text), screen_.columns()) : text;
}

void TerminalSink::receive(const Event& event) {
  std::visit([this](const auto& happened) { show(happened); }, event);
}

void TerminalSink::show(const RunPlanned& planned) {
  std::vector<LabelledValue> rows = planned.rows;
  if (verbose_ || !on_terminal()) rows.insert(rows.end(), planned.details.begin(), planned.details.end());
  const int columns = on_terminal() ? std::min(screen_.columns(), widest_plan) : 0;
  screen_.print(aligned_lines(rows, columns) + (on_terminal() ? "\n" : ""));
}

void TerminalSink::show(const RunBegan& began) {
  result_.run = began;
  step_ = began.first_step;
  curves_.name = began.out.empty() ? "this run" : began.out;
  show(starting);
}

void TerminalSink::show(const StepMade& made) {
  using namespace std::chrono_literals;
  eta_.stepped(made.seconds);
  step_ = made.step;
  activity_ = {};
  if (Screen::Clock::now() - shown_at_ >= 100ms) show_progress();  // a step may take a millisecond
}

void TerminalSink::show(const StepLogged& logged) {
  result_.logged = logged;
  show_progress();
  const StepRecord& record = logged.record;
  if (std::isfinite(record.loss)) curves_.loss.push_back({static_cast<double>(record.step), record.loss});
  const double left = eta_.seconds_left(record.step);
  const RunBegan& run = result_.run;
  screen_.print(on_terminal() ? step_line_in(screen_.columns(), record, run.steps, run.rate_unit, left)
                              : step_line(record, run.steps, run.rate_unit, left));
}

void TerminalSink::show(const Validated& validated) {
  result_.validated = validated;
  eta_.evaluated(validated.step, validated.seconds);
  if (std::isfinite(validated.loss))
    curves_.validation.push_back({static_cast<double>(validated.step), validated.loss});
  screen_.print(wrapped(validation_line(validated, result_.run.steps, on_terminal())), Style::bold);
  show(step_ == result_.run.first_step ? starting : Activity{});
}

void TerminalSink::show(const Sampled& sampled) {
  eta_.sampled(sampled.step, sampled.seconds);
  screen_.print(sample_block(sampled));
  show(Activity{});
}

void TerminalSink::show(const Activity& activity) {
  const bool begins = activity.name != activity_.name;
  activity_ = activity;
  show_progress(begins);
}

void TerminalSink::show(const Saved& saved) {
  eta_.saved(saved.step, saved.stall_seconds, saved.seconds);
  result_.saved = true;
  result_.best = result_.best || saved.best;
  if (saved.leaving && saved.warning.empty()) return;
  const std::string line = wrapped(saved_line(saved, verbose_ || !on_terminal()));
  screen_.print(line, saved.warning.empty() ? Style::plain : Style::warning);
}

void TerminalSink::show(const RolledBack& rolled) {
  step_ = rolled.step;
  for (std::vector<CurvePoint>* points : {&curves_.loss, &curves_.validation})
    std::erase_if(*points, [&](const CurvePoint& p) { return p.x > static_cast<double>(rolled.step); });
}

void TerminalSink::show(const Said& said) {
  if (said.level == Said::Level::warning)
    screen_.print(wrapped(warning_text(said.text)), Style::warning);
  else
    screen_.print(wrapped(said.text));
}

void TerminalSink::show(const RunEnded& ended) {
  result_.ended = ended;
  screen_.end_live();
  show_curves();
  const std::string table =
      time_table(ended.phases, ended.wall_seconds, ended.steps, screen_.line_columns()) + memory_table(ended.memory);
  if (!on_terminal()) return screen_.print(table);
  screen_.print("\n" + table);
  screen_.print(wrapped(broken_between_fields(safe_text(result_line(result_)), screen_.columns())), Style::bold);
}

void TerminalSink::show_curves() {
  constexpr std::size_t fewest_points = 10;
  if (!screen_.terminal().updates || curves_.loss.size() < fewest_points) return;
  if (const auto size = chart_size(screen_))
    screen_.print("\n" + draw_curves({curves_}, *size, screen_.terminal().unicode));
}

/// Pads every field to its widest text so far, so that the fields and the bar stay where they are.
void TerminalSink::keep_widths(std::vector<std::string>& fields) {
  if (widths_.size() != fields.size()) widths_.assign(fields.size(), 0);
  for (std::size_t i = 0; i < fields.size(); ++i) {
    widths_[i] = std::max(widths_[i], columns_of(fields[i]));
    fields[i] = padded_to_columns(fields[i], widths_[i]);
  }
}

void TerminalSink::show_progress(bool now) {
  if (!screen_.terminal().updates) return;
  shown_at_ = Screen::Clock::now();
  const std::int64_t steps = result_.run.steps;
  std::vector<std::string> fields = {fmt::format("step {:>{}}/{}", step_, std::to_string(steps).size(), steps)};
  if (!activity_.name.empty())
    fields.push_back(activity_.total == 0 ? activity_.name
                                          : fmt::format("{} {:>{}}/{}", activity_.name, activity_.done,
                                                        std::to_string(activity_.total).size(), activity_.total));
  if (eta_.step_seconds() > 0) {
    fields.push_back(fmt::format("{:<10}", "eta " + format_duration(eta_.seconds_left(step_))));
    fields.push_back(fmt::format("{:<13}", rate_text(eta_.step_seconds())));
  }
  if (result_.logged && result_.logged->record.peak_bytes)
    fields.push_back(format_bytes(static_cast<double>(*result_.logged->record.peak_bytes)));
  keep_widths(fields);
  double fraction = static_cast<double>(step_) / static_cast<double>(std::max<std::int64_t>(steps, 1));
  if (!activity_.name.empty()) fraction = std::min(fraction, 0.99);  // there is more to do
  screen_.show_live([fraction, fields = std::move(fields), unicode = screen_.terminal().unicode](
                        int columns) { return progress_line(fraction, fields, columns, unicode); },
                    now);
}

}  // namespace trireme
