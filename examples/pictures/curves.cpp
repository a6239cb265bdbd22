#include "examples/pictures/curves.h"

#include <fmt/core.h>

#include "data/utf8.h"
#include "ops/plot/svg.h"
#include "train/program/units.h"

namespace trireme::pictures {
namespace {

constexpr double margin = 16, label_width = 56, label_height = 28, row_height = 22;
constexpr Rect inside = {margin + label_width, margin, 720, 360};

Point place(const Axes& axes, const CurvePoint& p) {
  return {inside.x + axes.x.fraction(p.x) * inside.width, inside.bottom() - axes.y.fraction(p.y) * inside.height};
}

void draw_axes(Drawing& drawing, const Axes& axes) {
  for (const double mark : axes.y.marks()) {
    const double y = place(axes, {axes.x.low, mark}).y;
    drawing.line({inside.x, y}, {inside.right(), y}, {.tone = Tone::idle, .width = 1});
    drawing.text({inside.x - 8, y}, fmt::format("{:.4g}", mark), {.anchor = Anchor::end, .muted = true});
  }
  for (const double mark : axes.x.marks()) {
    const double x = place(axes, {mark, axes.y.low}).x;
    drawing.line({x, inside.bottom()}, {x, inside.bottom() + 5}, {.width = 1});
    drawing.text({x, inside.bottom() + 17}, format_count(mark), {.anchor = Anchor::middle, .muted = true});
  }
  drawing.line({inside.x, inside.bottom()}, {inside.right(), inside.bottom()}, {.width = 1});
}

void draw_run(Drawing& drawing, const RunCurves& run, const Axes& axes, Tone tone) {
  std::vector<Point> corners;
  for (const CurvePoint& p : run.loss) corners.push_back(place(axes, p));
  drawing.polyline(corners, {.tone = tone});
  for (const CurvePoint& p : run.validation) {
    const Point at = place(axes, p);
    drawing.box({at.x - 4, at.y - 4, 8, 8},
                {.tone = tone, .depth = 1, .radius = 4, .hint = fmt::format("{:.4f}", p.y)});
  }
}

void draw_legend(Drawing& drawing, const RunCurves& run, Tone tone, double y) {
  drawing.line({inside.x, y}, {inside.x + 24, y}, {.tone = tone});
  if (!run.validation.empty()) drawing.box({inside.x + 8, y - 4, 8, 8}, {.tone = tone, .depth = 1, .radius = 4});
  drawing.text({inside.x + 32, y},
               fmt::format("{}: loss{}", safe_line(run.name), run.validation.empty() ? "" : ", and validation loss"));
}

}  // namespace

std::string draw_curves(const std::vector<RunCurves>& runs) {
  const Axes axes = axes_of(runs, 10, 8);
  Drawing drawing("Loss by step",
                  fmt::format("Curves of the loss of {} run{}.", runs.size(), runs.size() == 1 ? "" : "s"));
  draw_axes(drawing, axes);
  double y = inside.bottom() + label_height + row_height / 2;
  for (std::size_t i = 0; i < runs.size(); ++i, y += row_height) {
    const Tone tone = tone_of_rank(static_cast<int>(i));
    draw_run(drawing, runs[i], axes, tone);
    draw_legend(drawing, runs[i], tone, y);
  }
  return drawing.svg(inside.right() + margin, y - row_height / 2 + margin);
}

}  // namespace trireme::pictures
