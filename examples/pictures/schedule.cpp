#include "examples/pictures/schedule.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "ops/plot/svg.h"
#include "parallel/pipeline/check.h"
#include "parallel/pipeline/drawing.h"

namespace trireme::pictures {

namespace {

using namespace pipeline;

// Sizes in pixels.
constexpr double row_height = 24, row_gap = 5, left = 58, top = 88, legend_height = 34, kept_width = 82;
constexpr double number_size = 11.5;
const BoxStyle idle_style{.tone = Tone::idle, .border = false, .radius = 0};

struct ActionStyle {
  ActionKind kind;
  Tone tone;
  const char* meaning;
};
constexpr std::array<ActionStyle, 4> styles = {
    {{ActionKind::forward, Tone::blue, "forward"},
     {ActionKind::backward, Tone::green, "backward"},
     {ActionKind::backward_input, Tone::green, "backward, input's part"},
     {ActionKind::backward_weight, Tone::orange, "backward, weights' part"}}};

BoxStyle style_of(const Schedule& schedule, const Action& action) {
  const auto* const found =
      std::find_if(styles.begin(), styles.end(), [&](const ActionStyle& style) { return style.kind == action.kind; });
  const int chunk = action.stage / schedule.rank_count();
  return {.tone = found->tone,
          .depth = schedule.chunks() == 1 ? 0 : static_cast<double>(chunk) / (schedule.chunks() - 1),
          .radius = 0,
          .hint = to_string(action)};
}

bool has(const Schedule& schedule, ActionKind kind) {
  return std::any_of(schedule.ranks.begin(), schedule.ranks.end(), [&](const std::vector<Action>& list) {
    return std::any_of(list.begin(), list.end(), [&](const Action& a) { return a.kind == kind; });
  });
}

/// The lengths of the boxes, in units of time.
std::string units(const Schedule& schedule, const Costs& costs) {
  std::string backward;
  if (schedule.backward) {
    backward = has(schedule, ActionKind::backward_weight)
                   ? fmt::format(", its backward {} + {}", costs.input, costs.weight)
                   : fmt::format(", its backward {}", costs.input + costs.weight);
  }
  return fmt::format("a stage's forward takes {}{}", costs.forward, backward);
}

/// A row: the rank's computations, on a background that shows idle time.
void draw_row(Drawing& drawing, const Schedule& schedule, const std::vector<Interval>& row, double y, double unit,
              int end) {
  drawing.box({left, y, unit * end, row_height}, idle_style);
  for (const Interval& interval : row) {
    if (interval.end == interval.start) continue;
    drawing.label({left + unit * interval.start, y, unit * (interval.end - interval.start), row_height},
                  style_of(schedule, interval.action), std::to_string(interval.action.microbatch),
                  {.size = number_size});
  }
}

/// One box for each kind of computation in the schedule.
void draw_legend(Drawing& drawing, const Schedule& schedule, double y) {
  double x = left;
  const auto entry = [&](const BoxStyle& style, const char* meaning) {
    drawing.box({x, y - 7, 14, 14}, style);
    drawing.text({x + 20, y}, meaning, {.size = 12});
    x += 40 + text_width(meaning, 12);
  };
  for (const ActionStyle& style : styles) {
    if (has(schedule, style.kind)) entry({.tone = style.tone, .radius = 0}, style.meaning);
  }
  entry(idle_style, "idle");
  if (schedule.chunks() > 1) drawing.text({x, y}, "stronger colour: a later stage of the rank", {.size = 12});
}

}  // namespace

std::string draw_schedule(const Schedule& schedule, const Costs& costs, double unit) {
  const auto timeline = simulate(schedule, costs);
  const ScheduleCosts found = check(schedule, costs);
  const std::string title = headline(schedule, costs), sizes = title.substr(0, title.find("; "));
  int end = 0;
  for (const auto& row : timeline) end = std::max(end, row.back().end);
  // Wide enough for the longest number in the narrowest box.
  if (unit == 0) unit = 10 + text_width(std::to_string(schedule.microbatches - 1), number_size);
  const double rows_right = left + unit * end;

  Drawing drawing(
      "Pipeline schedule " + title,
      fmt::format("A row for each of {} ranks, time from left to right. A box is a forward or a backward of "
                  "the micro-batch with its number; where there is none the rank is idle.",
                  schedule.rank_count()));
  drawing.text({left, 22}, sizes, {.size = 15, .bold = true});
  const std::string figures = title.substr(sizes.size() + 2) + "; " + units(schedule, costs);
  drawing.text({left, 43}, figures, {.size = 12, .muted = true});
  drawing.text({rows_right + 8, 64}, "activations", {.size = 11, .muted = true});
  drawing.text({rows_right + 8, 77}, "kept at most", {.size = 11, .muted = true});
  for (int rank = 0; rank < schedule.rank_count(); ++rank) {
    const double y = top + rank * (row_height + row_gap), middle = y + row_height / 2;
    drawing.text({left - 8, middle}, fmt::format("rank {}", rank), {.anchor = Anchor::end});
    draw_row(drawing, schedule, timeline[static_cast<std::size_t>(rank)], y, unit, end);
    const int kept = found.peak_live[static_cast<std::size_t>(rank)];
    drawing.text({rows_right + 8, middle}, std::to_string(kept), {.bold = true});
  }
  const double rows_end = top + schedule.rank_count() * (row_height + row_gap);
  draw_legend(drawing, schedule, rows_end + 16);
  const double width = std::max(rows_right + kept_width, left + text_width(figures, 12) + 16);
  return drawing.svg(width, rows_end + legend_height);
}

}  // namespace trireme::pictures
