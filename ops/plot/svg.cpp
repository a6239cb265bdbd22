#include "ops/plot/svg.h"

#include <fmt/core.h>

#include <array>
#include <cmath>

namespace trireme::pictures {

namespace {

/// The colours of one tone, for a light page and for a dark one.
struct Colours {
  const char* name;
  const char *fill, *strong, *stroke;
  const char *dark_fill, *dark_strong, *dark_stroke;
};

// In the order of Tone. Text has a contrast of at least 4.5 on every fill, so it is legible.
constexpr std::array<Colours, 6> tones = {{
    {"plain", "#f6f8fa", "#d1d9e0", "#818b98", "#212830", "#3d444d", "#9198a1"},
    {"idle", "#eaeef2", "#eaeef2", "#c5ccd3", "#21272f", "#21272f", "#4a525c"},
    {"blue", "#c2e0ff", "#6cb6ff", "#0969da", "#12406b", "#1a62b0", "#58a6ff"},
    {"orange", "#ffdcb3", "#ffac52", "#bc4c00", "#66380f", "#9c510e", "#f0883e"},
    {"green", "#bdeac8", "#6fd187", "#1a7f37", "#17492a", "#1e7035", "#3fb950"},
    {"purple", "#e4d4ff", "#bf98ff", "#8250df", "#43306f", "#744ac8", "#ab7df8"},
}};

const Colours& colours(Tone tone) { return tones[static_cast<std::size_t>(tone)]; }

std::string rules(bool dark) {
  std::string css = dark ? ".page{fill:#0d1117}text{fill:#e6edf3}.muted{fill:#9198a1}\n"
                         : ".page{fill:#fff}text{fill:#1f2328}.muted{fill:#59636e}\n";
  for (const Colours& c : tones) {
    const char* stroke = dark ? c.dark_stroke : c.stroke;
    css += fmt::format(".{0}{{fill:{1};stroke:{2}}}.{0}.strong{{fill:{3}}}.{0}-line{{stroke:{2}}}\n", c.name,
                       dark ? c.dark_fill : c.fill, stroke, dark ? c.dark_strong : c.strong);
  }
  return css;
}

/// Distance from the middle of a line of text down to its baseline, as a fraction of its size.
constexpr double baseline = 11.0 / 32;

std::string number(double value) {
  const double tenths = std::round(value * 10) / 10;
  return fmt::format("{:g}", tenths == 0 ? 0 : tenths);  // no -0
}

std::string at(Point p) { return number(p.x) + " " + number(p.y); }

std::string path_through(const std::vector<Point>& points) {
  std::string path;
  for (const Point& point : points) path += (path.empty() ? "M" : "L") + at(point);
  return path;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

Tone tone_of_rank(int rank) {
  constexpr std::array<Tone, 4> order = {Tone::blue, Tone::orange, Tone::green, Tone::purple};
  return order[static_cast<std::size_t>(rank) % order.size()];
}

double text_width(std::string_view text, double size) {
  std::size_t letters = 0;
  for (const char c : text) letters += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U ? 1U : 0U;  // of UTF-8
  return 0.625 * size * static_cast<double>(letters);
}

Drawing::Drawing(std::string title, std::string description)
    : title_(std::move(title)), description_(std::move(description)) {}

void Drawing::box(const Rect& rect, const BoxStyle& style) {
  body_ +=
      fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" class=\"{}{}\"", number(rect.x), number(rect.y),
                  number(rect.width), number(rect.height), colours(style.tone).name, style.depth > 0 ? " strong" : "");
  if (style.radius > 0) body_ += fmt::format(" rx=\"{}\"", number(style.radius));
  std::string more;  // a style attribute overrides the classes
  if (style.depth > 0 && style.depth < 1) more += fmt::format("fill-opacity:{:.2g};", 0.45 + 0.55 * style.depth);
  if (!style.border) more += "stroke:none;";
  if (!more.empty()) body_ += fmt::format(" style=\"{}\"", more);
  body_ += style.hint.empty() ? "/>\n" : fmt::format("><title>{}</title></rect>\n", escaped(style.hint));
}

void Drawing::line(Point from, Point to, const LineStyle& style) { polyline({from, to}, style); }

void Drawing::polyline(const std::vector<Point>& points, const LineStyle& style) {
  body_ += fmt::format("<path d=\"{}\" fill=\"none\" class=\"{}-line\" stroke-width=\"{}\"/>\n", path_through(points),
                       colours(style.tone).name, number(style.width));
}

void Drawing::area(const std::vector<Point>& corners, Tone tone) {
  body_ +=
      fmt::format("<path d=\"{}Z\" class=\"{}\" style=\"stroke:none\"/>\n", path_through(corners), colours(tone).name);
}

void Drawing::text(Point point, std::string_view content, const TextStyle& style) {
  body_ += fmt::format("<text x=\"{}\" y=\"{}\"", number(point.x), number(point.y + baseline * style.size));
  if (style.anchor != Anchor::start)
    body_ += fmt::format(" text-anchor=\"{}\"", style.anchor == Anchor::end ? "end" : "middle");
  if (style.size != 13) body_ += fmt::format(" font-size=\"{}\"", number(style.size));
  if (style.bold) body_ += " font-weight=\"bold\"";
  if (style.muted) body_ += " class=\"muted\"";
  body_ += fmt::format(">{}</text>\n", escaped(content));
}

void Drawing::label(const Rect& rect, const BoxStyle& style, std::string_view content, const TextStyle& text_style) {
  box(rect, style);
  TextStyle centred = text_style;
  centred.anchor = Anchor::middle;
  text(rect.centre(), content, centred);
}

std::string Drawing::svg(double width, double height, std::string_view id) const {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\" "
      "aria-labelledby=\"{6}title {6}description\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\">\n"
      "<title id=\"{6}title\">{2}</title>\n<desc id=\"{6}description\">{3}</desc>\n"
      "<style>\ntext{{pointer-events:none}}\n{4}@media (prefers-color-scheme: dark){{\n{5}}}\n</style>\n"
      "<rect width=\"100%\" height=\"100%\" class=\"page\"/>\n{7}</svg>\n",
      number(width), number(height), escaped(title_), escaped(description_), rules(false), rules(true), id, body_);
}

}  // namespace trireme::pictures
