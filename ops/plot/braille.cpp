#include "ops/plot/braille.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "data/utf8.h"
#include "train/program/text_width.h"

namespace trireme {
namespace {

constexpr int dots_across = 2, dots_down = 4;  // of a character of braille

/// The inside of a chart: characters, each with its dots. The origin is at the top left.
class Canvas {
 public:
  Canvas(int columns, int rows) : columns_(columns), rows_(rows), dots_(count()), marks_(count(), U'\0') {}

  void dot(int x, int y) {
    static constexpr std::array<std::array<unsigned, dots_across>, dots_down> bits = {
        {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}};
    dots_[index(x / dots_across, y / dots_down)] |=
        bits[static_cast<std::size_t>(y % dots_down)][static_cast<std::size_t>(x % dots_across)];
  }
  /// Dots on the straight line between two dots.
  void line(int x0, int y0, int x1, int y1) {
    const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
    for (int i = 0; i <= steps; ++i) {
      const double part = static_cast<double>(i) / steps;
      dot(static_cast<int>(std::lround(x0 + part * (x1 - x0))), static_cast<int>(std::lround(y0 + part * (y1 - y0))));
    }
  }
  /// Replaces the character that has this dot.
  void mark(int x, int y, char32_t character) { marks_[index(x / dots_across, y / dots_down)] = character; }

  std::string row(int y, bool unicode) const {
    std::string text;
    for (int x = 0; x < columns_; ++x) {
      const std::size_t at = index(x, y);
      char32_t character = marks_[at];
      if (character == 0) character = dots_[at] == 0 ? U' ' : unicode ? U'\u2800' + dots_[at] : U'.';
      append_utf8(text, character);
    }
    return text;
  }
  int dots_wide() const { return columns_ * dots_across; }
  int dots_high() const { return rows_ * dots_down; }

 private:
  std::size_t count() const { return static_cast<std::size_t>(columns_) * static_cast<std::size_t>(rows_); }
  std::size_t index(int column, int row) const {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(columns_) + static_cast<std::size_t>(column);
  }

  int columns_, rows_;
  std::vector<unsigned> dots_;
  std::vector<char32_t> marks_;
};

/// At most so many steps between marks on the axis of losses, in a chart of so many rows.
int y_marks(int rows) { return std::max(2, rows / 3); }

class Chart {
 public:
  Chart(const std::vector<RunCurves>& runs, int columns, int rows)
      : axes_(axes_of(runs, std::max(2, columns / 12), y_marks(rows))), canvas_(columns, rows) {
    // Losses first, so that they do not hide marks of validation losses.
    char32_t letter = runs.size() == 1 ? U'\0' : U'a', mark = runs.size() == 1 ? U'o' : U'A';
    for (const RunCurves& run : runs) draw_line(run.loss, letter == 0 ? letter : letter++);
    for (const RunCurves& run : runs) {
      for (const CurvePoint& p : run.validation) canvas_.mark(x_of(p), y_of(p), mark);
      ++mark;
    }
  }
  const Axes& axes() const { return axes_; }
  const Canvas& canvas() const { return canvas_; }
  int row_of(double y) const { return dot_of(1 - axes_.y.fraction(y), canvas_.dots_high()) / dots_down; }
  int column_of(double x) const { return dot_of(axes_.x.fraction(x), canvas_.dots_wide()) / dots_across; }

 private:
  static int dot_of(double fraction, int dots) { return static_cast<int>(std::lround(fraction * (dots - 1))); }
  int x_of(const CurvePoint& p) const { return dot_of(axes_.x.fraction(p.x), canvas_.dots_wide()); }
  int y_of(const CurvePoint& p) const { return dot_of(1 - axes_.y.fraction(p.y), canvas_.dots_high()); }

  /// Marks the curve with `letter` every twelve columns, unless it is 0.
  void draw_line(const std::vector<CurvePoint>& points, char32_t letter) {
    constexpr int between_letters = 12 * dots_across;
    int next_letter = between_letters / 2;
    for (std::size_t i = 0; i < points.size(); ++i) {
      const CurvePoint &p = points[i], &before = points[i == 0 ? 0 : i - 1];
      canvas_.line(x_of(before), y_of(before), x_of(p), y_of(p));
      if (letter == 0 || (x_of(p) < next_letter && i + 1 < points.size())) continue;
      canvas_.mark(x_of(p), y_of(p), letter);
      next_letter = x_of(p) + between_letters;
    }
  }

  Axes axes_;
  Canvas canvas_;
};

/// Labels of the steps, each beginning below its mark.
std::string step_labels(const Chart& chart, int columns) {
  std::string text;
  const std::vector<double> marks = chart.axes().x.marks();
  const std::vector<std::string> labels = mark_labels(chart.axes().x, true);
  for (std::size_t i = 0; i < marks.size(); ++i) {
    const std::string& label = labels[i];
    const int column = std::min(chart.column_of(marks[i]), columns - static_cast<int>(label.size()));
    if (column < static_cast<int>(text.size()) + (text.empty() ? 0 : 1)) continue;  // no room
    text += std::string(static_cast<std::size_t>(column) - text.size(), ' ') + label;
  }
  return text;
}

std::string legend(const std::vector<RunCurves>& runs, std::size_t i, bool unicode) {
  if (runs.size() == 1)
    return fmt::format("{} loss{}  {}", unicode ? "\u2812" : ".",
                       runs[0].validation.empty() ? "" : "  o validation loss", runs[0].name);
  const auto letter = static_cast<char>('a' + i);
  return fmt::format("{} loss{}  {}", letter,
                     runs[i].validation.empty() ? "" : fmt::format("  {} validation loss", static_cast<char>('A' + i)),
                     runs[i].name);
}

}  // namespace

std::optional<ChartSize> chart_size(const Screen& screen) {
  constexpr int fewest_columns = 40, fewest_rows = 15;
  constexpr int kept_rows = 4;  // for the prompt and a few lines before it
  if (screen.columns() < fewest_columns || screen.rows() < fewest_rows) return std::nullopt;
  return ChartSize{.columns = std::min(screen.columns() - 1, 100), .rows = std::min(screen.rows() - kept_rows, 20)};
}

std::string draw_curves(const std::vector<RunCurves>& runs, ChartSize size, bool unicode) {
  const int rows = std::max(size.rows - 2 - static_cast<int>(runs.size()), 4);
  std::size_t width = 6;  // of the labels of losses
  for (const std::string& label : mark_labels(axes_of(runs, 2, y_marks(rows)).y, false))
    width = std::max(width, label.size());
  const int columns = std::max(size.columns, 30) - static_cast<int>(width) - 2;
  const Chart chart(runs, columns, rows);
  std::vector<std::string> labels(static_cast<std::size_t>(rows));
  const std::vector<double> marks = chart.axes().y.marks();
  const std::vector<std::string> texts = mark_labels(chart.axes().y, false);
  for (std::size_t i = 0; i < marks.size(); ++i) labels[static_cast<std::size_t>(chart.row_of(marks[i]))] = texts[i];
  std::string text;
  for (std::size_t y = 0; y < labels.size(); ++y)
    text += fmt::format("{:>{}} {}{}\n", labels[y], width, unicode ? "\u2502" : "|",
                        chart.canvas().row(static_cast<int>(y), unicode));
  text += fmt::format("{:>{}} {}", "", width, unicode ? "\u2514" : "+");
  for (int i = 0; i < columns; ++i) text += unicode ? "\u2500" : "-";
  text += fmt::format("\n{:>{}}{}\n", "", width + 2, step_labels(chart, columns));
  for (std::size_t i = 0; i < runs.size(); ++i)
    text += fmt::format("{:>{}}{}\n", "", width + 2, cut_to_columns(safe_line(legend(runs, i, unicode)), columns));
  return text;
}

}  // namespace trireme
