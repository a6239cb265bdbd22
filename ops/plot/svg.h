// Drawing: a picture as an SVG document, made of boxes, lines and text.
//
// A picture must be legible on a light and on a dark page. So shapes have a Tone instead of a colour, and the
// document's style sheet defines each tone for both. The background is drawn too, because the reader's system and the
// surrounding page may use different modes.
//
// Coordinates are pixels with at most one decimal. Factors are fractions such as 5/8, whose arithmetic is exact, so
// every compiler draws the same bytes. Read next: examples/pictures/schedule.cpp, which draws with this.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::pictures {

struct Point {
  double x = 0, y = 0;
};

struct Rect {
  double x = 0, y = 0, width = 0, height = 0;
  double right() const { return x + width; }
  double bottom() const { return y + height; }
  Point centre() const { return {x + width / 2, y + height / 2}; }
};

enum class Tone : std::uint8_t { plain, idle, blue, orange, green, purple };
/// A tone for each rank; they repeat after four ranks.
Tone tone_of_rank(int rank);

struct BoxStyle {
  Tone tone = Tone::plain;
  bool border = true;
  double depth = 0;       ///< 0: the light shade of the tone; 1: the strong shade
  double radius = 2;      ///< of the corners
  std::string hint = {};  ///< shown as a tooltip
};

enum class Anchor : std::uint8_t { start, middle, end };

struct TextStyle {
  Anchor anchor = Anchor::start;
  double size = 13;
  bool bold = false;
  bool muted = false;
};

struct LineStyle {
  Tone tone = Tone::plain;
  double width = 1.5;
};

/// The approximate width of `text` in the widest of the usual fonts.
double text_width(std::string_view text, double size);

/// As text in XML and HTML.
std::string escaped(std::string_view text);

class Drawing {
 public:
  /// `title` names the picture; `description` says in a few sentences what it shows, for readers who cannot see it.
  Drawing(std::string title, std::string description);

  void box(const Rect& rect, const BoxStyle& style);
  void line(Point from, Point to, const LineStyle& style = {});
  /// A filled polygon.
  void area(const std::vector<Point>& corners, Tone tone);
  /// Straight lines from point to point.
  void polyline(const std::vector<Point>& points, const LineStyle& style = {});
  /// Vertically centred on `at.y`; `style.anchor` is at `at.x`.
  void text(Point at, std::string_view content, const TextStyle& style = {});
  /// A box with text in its middle.
  void label(const Rect& rect, const BoxStyle& style, std::string_view content, const TextStyle& text_style = {});

  /// `id`: begins the ids in the document, if it will be one of several in a page.
  std::string svg(double width, double height, std::string_view id = "") const;

 private:
  std::string title_, description_, body_;
};

}  // namespace trireme::pictures
