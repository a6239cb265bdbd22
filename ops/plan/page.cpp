#include "ops/plan/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "ops/plan/explain.h"
#include "ops/plan/step_picture.h"
#include "ops/plot/curves.h"
#include "ops/plot/svg.h"
#include "train/program/units.h"

namespace trireme::plan {
namespace {

using namespace pictures;

constexpr std::string_view style =
    "body{font:15px/1.5 Helvetica,Arial,sans-serif;margin:2em auto;max-width:1120px;padding:0 1em;background:#fff;"
    "color:#1f2328}pre{overflow-x:auto;font-size:12.5px;padding:1em;background:#f6f8fa}figure{margin:0;overflow-x:auto}"
    "table{border-collapse:collapse}td,th{padding:.1em 1em .1em 0;text-align:left}"
    "@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}pre{background:#161b22}}";

std::string section(std::string_view title, std::string_view words, const std::string& content) {
  return fmt::format("<h2>{}</h2>\n<p>{}</p>\n{}\n", title, words, content);
}
std::string figure(const std::string& svg) { return "<figure>" + svg + "</figure>"; }
std::string text_block(const std::string& text) { return "<pre>" + escaped(text) + "</pre>"; }

std::string describe(const Tried& tried) {
  return fmt::format("{:.4g} s, {}: {}", tried.seconds, format_bytes(static_cast<double>(tried.memory)),
                     settings_text(tried.options));
}

/// A dot for each of the settings that were simulated, and a line along the front.
std::string draw_front(const Search& found) {
  constexpr double left = 66, top = 16, width = 1000, height = 320, dot = 7;
  const double slowest = 1.25 * found.front.back().seconds;  // of those that are drawn
  double largest = 0;
  for (const auto* some : {&found.front, &found.others})
    for (const Tried& tried : *some)
      if (tried.seconds <= slowest) largest = std::max(largest, static_cast<double>(tried.memory) / 0x1p30);
  const Axes axes = {Scale::around(0, slowest, 12), Scale::around(0, largest, 8)};
  const auto place = [&](double seconds, double gibibytes) {
    return Point{left + width * axes.x.fraction(seconds), top + height * (1 - axes.y.fraction(gibibytes))};
  };
  Drawing drawing("Memory against time",
                  "A dot for each of the settings that were simulated: seconds of a step from "
                  "left to right, memory of the fullest rank upwards.");
  const auto draw_marks = [&](const Scale& scale, const auto& draw, std::string_view unit) {
    const std::vector<double> marks = scale.marks();
    const std::vector<std::string> labels = mark_labels(scale, false);
    for (std::size_t i = 0; i < marks.size(); ++i)
      draw(marks[i], labels[i] + (i + 1 == marks.size() ? fmt::format(" {}", unit) : ""));
  };
  draw_marks(
      axes.y,
      [&](double mark, const std::string& label) {
        const Point at = place(axes.x.low, mark);
        drawing.line(at, place(axes.x.high, mark), {.tone = Tone::idle, .width = 0.5});
        drawing.text({at.x - 8, at.y}, label, {.anchor = Anchor::end, .size = 12, .muted = true});
      },
      "GiB");
  draw_marks(
      axes.x,
      [&](double mark, const std::string& label) {
        const Point at = place(mark, axes.y.low);
        drawing.line(at, {at.x, at.y + 4}, {.width = 1});
        drawing.text({at.x, at.y + 14}, label, {.anchor = Anchor::middle, .size = 12, .muted = true});
      },
      "s");
  const auto draw_dots = [&](const std::vector<Tried>& some, const BoxStyle& dot_style) {
    std::vector<Point> points;
    for (const Tried& tried : some) {
      if (tried.seconds > slowest) continue;
      points.push_back(place(tried.seconds, static_cast<double>(tried.memory) / 0x1p30));
      BoxStyle one = dot_style;
      one.hint = describe(tried);
      drawing.box({points.back().x - dot / 2, points.back().y - dot / 2, dot, dot}, one);
    }
    return points;
  };
  draw_dots(found.others, {.tone = Tone::plain, .radius = dot / 2});
  const std::vector<Point> front = draw_dots(found.front, {.tone = Tone::blue, .depth = 1, .radius = dot / 2});
  if (front.size() > 1) drawing.polyline(front, {.tone = Tone::blue, .width = 1});
  return drawing.svg(left + width + 36, top + height + 30, "front-");
}

std::string front_table(const std::vector<Tried>& front) {
  std::string rows;
  for (const Tried& tried : front)
    rows += fmt::format("<tr><td>{:.4g} s</td><td>+{:.1f} %</td><td>{}</td><td><code>{}</code></td></tr>\n",
                        tried.seconds, 100 * (tried.seconds / front.front().seconds - 1),
                        format_bytes(static_cast<double>(tried.memory)), escaped(settings_text(tried.options)));
  return "<table><tr><th>step</th><th></th><th>memory</th><th>settings</th></tr>\n" + rows + "</table>";
}

}  // namespace

std::string to_html(const Answer& answer, const Recording& recording) {
  const auto& [question, found, would_fit] = answer;
  const Choice& best = found.choices.front();
  const std::string title =
      fmt::format("{} parameters on {} devices", format_count(static_cast<double>(question.model.parameters)),
                  best.options.mesh.shape.ranks());
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{0}</title>\n<style>{1}</style>\n"
      "</head>\n<body>\n<h1>{0}</h1>\n",
      title, style);
  page += text_block(to_text(answer));
  page += section("A step",
                  fmt::format("The simulated step of <code>{}</code>. One pipeline is drawn; ranks that differ "
                              "along other axes do the same. Point at a box to read what it is.",
                              escaped(settings_text(best.options))),
                  figure(draw_timeline(recording)));
  page += section("Memory", "What tensors of the fullest rank need, by category, in the same step.",
                  figure(draw_memory(recording)));
  if (found.front.size() + found.others.size() > 1)
    page +=
        section("Memory against time",
                "A dot for each of the settings that were simulated. On the line are the fastest with what memory a "
                "device has, the fastest found that need at most 70 % of their memory, and so on.",
                figure(draw_front(found)) + "\n" + front_table(found.front));
  page += section("From FLOPs to tokens", "What the step takes, from its arithmetic on.",
                  text_block(explain(question, best)));
  return page + "</body>\n</html>\n";
}

}  // namespace trireme::plan
