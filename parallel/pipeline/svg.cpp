#include "parallel/pipeline/svg.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "parallel/pipeline/check.h"

namespace trireme::pipeline {

namespace {

// Sizes in pixels.
constexpr int row_height = 28, row_gap = 6, left = 70, right = 20, top = 64, legend_height = 40;

struct Colour {
  double red, green, blue;
};

/// 1 for the first chunk of a rank, less for later ones.
double brightness(const Schedule& schedule, const Action& action) {
  const int chunk = action.stage / schedule.rank_count();
  return schedule.chunks() == 1 ? 1 : 1 - 0.5 * chunk / (schedule.chunks() - 1);
}

std::string fill(const Schedule& schedule, const Action& action) {
  const Colour light = action.kind == ActionKind::forward           ? Colour{158, 202, 245}
                       : action.kind == ActionKind::backward_weight ? Colour{250, 196, 128}
                                                                    : Colour{158, 216, 158};
  const auto part = [&](double value) { return static_cast<int>(value * brightness(schedule, action)); };
  return fmt::format("#{:02x}{:02x}{:02x}", part(light.red), part(light.green), part(light.blue));
}

/// What the boxes' lengths mean.
std::string units(const Schedule& schedule, const Costs& costs) {
  const bool split = std::any_of(schedule.ranks[0].begin(), schedule.ranks[0].end(),
                                 [](const Action& a) { return a.kind == ActionKind::backward_weight; });
  std::string backward;
  if (schedule.backward) {
    backward = split ? fmt::format(", a backward {} + {}", costs.input, costs.weight)
                     : fmt::format(", a backward {}", costs.input + costs.weight);
  }
  return fmt::format("time in units: a forward takes {}{}", costs.forward, backward);
}

std::string text(double x, double y, const char* style, const std::string& content) {
  return fmt::format("<text x=\"{:g}\" y=\"{:g}\" {}>{}</text>\n", x, y, style, content);
}

std::string box(double x, double y, double width, double height, const std::string& colour, const std::string& hint) {
  return fmt::format(
      "<rect x=\"{:g}\" y=\"{:g}\" width=\"{:g}\" height=\"{:g}\" fill=\"{}\" "
      "stroke=\"#fff\"><title>{}</title></rect>\n",
      x, y, width, height, colour, hint);
}

/// One box per kind of computation the schedule has.
std::string legend(const Schedule& schedule, double y) {
  struct Entry {
    ActionKind kind;
    const char* meaning;
  };
  constexpr std::array<Entry, 4> entries = {{{ActionKind::forward, "forward"},
                                             {ActionKind::backward, "backward"},
                                             {ActionKind::backward_input, "backward, input part"},
                                             {ActionKind::backward_weight, "backward, weight part"}}};
  std::string result;
  double x = left;
  for (const Entry& entry : entries) {
    const auto has_kind = [&](const std::vector<Action>& list) {
      return std::any_of(list.begin(), list.end(), [&](const Action& a) { return a.kind == entry.kind; });
    };
    if (!std::any_of(schedule.ranks.begin(), schedule.ranks.end(), has_kind)) continue;
    result += box(x, y, 18, 18, fill(schedule, {entry.kind, 0, 0}), entry.meaning);
    result += text(x + 24, y + 14, "", entry.meaning);
    x += 60 + 7.0 * static_cast<double>(std::string_view(entry.meaning).size());
  }
  if (schedule.chunks() > 1) result += text(x, y + 14, "", "darker: a later chunk of the rank");
  return result;
}

}  // namespace

std::string to_svg(const Schedule& schedule, const Costs& costs) {
  const auto timeline = simulate(schedule, costs);
  const std::string title = headline(schedule, costs);
  int end = 0;
  for (const auto& row : timeline) end = std::max(end, row.back().end);
  // Wide enough for the longest number in the narrowest box, and for the title above few boxes.
  const double unit = 12.0 + 6.0 * static_cast<double>(fmt::formatted_size("{}", schedule.microbatches - 1));
  const double width = std::max(left + unit * end + right, left + right + 10.0 * static_cast<double>(title.size()));
  const int rows_end = top + schedule.rank_count() * (row_height + row_gap);

  std::string body = text(left, 28, "font-size=\"16\" font-weight=\"bold\"", title);
  body += text(left, 48, "fill=\"#555\"", units(schedule, costs));
  for (int rank = 0; rank < schedule.rank_count(); ++rank) {
    const double y = top + rank * (row_height + row_gap);
    body += text(left - 8, y + 19, "text-anchor=\"end\"", fmt::format("rank {}", rank));
    body += fmt::format("<rect x=\"{}\" y=\"{:g}\" width=\"{:g}\" height=\"{}\" fill=\"#f2f2f2\"/>\n", left, y,
                        unit * end, row_height);
    for (const Interval& interval : timeline[static_cast<std::size_t>(rank)]) {
      const double x = left + unit * interval.start, length = unit * (interval.end - interval.start);
      if (length == 0) continue;
      body += box(x, y, length, row_height, fill(schedule, interval.action), to_string(interval.action));
      const bool dark = brightness(schedule, interval.action) < 0.75;
      body += text(x + length / 2, y + 19,
                   dark ? "text-anchor=\"middle\" pointer-events=\"none\" fill=\"#fff\""
                        : "text-anchor=\"middle\" pointer-events=\"none\"",
                   std::to_string(interval.action.microbatch));
    }
  }
  body += legend(schedule, rows_end + 10);
  const int height = rows_end + legend_height;
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:g}\" height=\"{1}\" viewBox=\"0 0 {0:g} {1}\" "
      "font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{2}</svg>\n",
      width, height, body);
}

}  // namespace trireme::pipeline
