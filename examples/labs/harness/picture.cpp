#include "examples/labs/harness/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "examples/labs/harness/grading.h"

namespace trireme::labs {
namespace {

/// What takes most of a column's time is shown: computing, sending, waiting, or nothing.
constexpr std::array<std::string_view, 4> signs = {"#", ">", ".", " "};

std::string line_of(const std::vector<Span>& spans, bool background, double seconds, int columns) {
  std::string text;
  for (int column = 0; column < columns; ++column) {
    const double begin = seconds * column / columns, end = seconds * (column + 1) / columns;
    std::array<double, 4> share = {0, 0, 0, 0.5 * (end - begin)};
    for (const Span& span : spans) {
      if ((span.task >= 0) != background) continue;
      share[at(span.kind)] += std::max(0.0, std::min(end, span.end) - std::max(begin, span.begin));
    }
    text += signs[at(std::ranges::max_element(share) - share.begin())];
  }
  return text;
}

bool has_tasks(const Timeline& timeline) {
  for (const auto& spans : timeline.ranks)
    for (const Span& span : spans)
      if (span.task >= 0) return true;
  return false;
}

std::string readable(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.1f} us", 1e6 * seconds);
  if (seconds < 1) return fmt::format("{:.2f} ms", 1e3 * seconds);
  return fmt::format("{:.2f} s", seconds);
}

std::string label(const Span& span) {
  switch (span.kind) {
    case Span::Kind::compute:
      return span.what;
    case Span::Kind::send:
      return fmt::format("message to rank {}", span.peer);
    case Span::Kind::waits:
      return span.peer >= 0 ? fmt::format("waits for rank {}", span.peer) : "waits for a task";
  }
  return {};
}

}  // namespace

std::string draw_text(const Timeline& timeline, int columns) {
  const bool tasks = has_tasks(timeline);
  std::string text;
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    text += fmt::format("rank {}  |{}|\n", rank, line_of(timeline.ranks[rank], false, timeline.seconds, columns));
    if (tasks) text += fmt::format("  tasks |{}|\n", line_of(timeline.ranks[rank], true, timeline.seconds, columns));
  }
  return text + fmt::format("# computes, > sends, . waits; {} from left to right\n", readable(timeline.seconds));
}

std::string draw_svg(const Timeline& timeline, const std::string& title) {
  constexpr double left = 70, width = 900, row = 22;
  constexpr std::array<std::string_view, 3> colors = {"#4c78a8", "#f2a33a", "#d9d9d9"};
  const bool tasks = has_tasks(timeline);
  const double rows = static_cast<double>(timeline.ranks.size()) * (tasks ? 2 : 1);
  const double height = 40 + rows * row + 30;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"{}\" y=\"20\">{}</text>\n",
      left + width + 20, height, left, title);
  double top = 34;
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    svg += fmt::format("<text x=\"8\" y=\"{:.1f}\">rank {}</text>\n", top + 14, rank);
    for (const Span& span : timeline.ranks[rank]) {
      const double scale = width / timeline.seconds, y = top + (span.task >= 0 ? row : 0);
      svg += fmt::format(
          "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\" stroke=\"white\" "
          "stroke-width=\"0.5\"><title>{}, {}</title></rect>\n",
          left + span.begin * scale, y, (span.end - span.begin) * scale, row - 4, colors[at(span.kind)], label(span),
          readable(span.end - span.begin));
    }
    top += row * (tasks ? 2 : 1);
  }
  svg += fmt::format(
      "<text x=\"{}\" y=\"{:.1f}\">{} from left to right. Blue: computes; orange: sends; grey: "
      "waits{}.</text>\n</svg>\n",
      left, top + 16, readable(timeline.seconds), tasks ? "; second row: tasks in the background" : "");
  return svg;
}

void Grading::show(const Timeline& timeline, const std::string& title) {
  picture_ = draw_text(timeline);
  svg_ = draw_svg(timeline, title);
}

}  // namespace trireme::labs
