// Drawing: a picture as an SVG document, made of boxes, lines and text.
//
// A picture must read well on a light and on a dark page. So shapes have a Tone instead of a colour, and the document's
// style sheet gives each tone one colour for either. The page is drawn too, because the reader's system and the page
// around the picture can differ in which of the two they are.
//
// Coordinates are pixels, written with one decimal at most. Factors are fractions such as 5/8, whose arithmetic is
// exact: then every compiler draws the same bytes. Read next: examples/pictures/schedule.cpp, which draws with this.
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
/// A tone for each of a few ranks.
Tone tone_of_rank(int rank);

enum class Border : std::uint8_t { solid, dashed, none };

struct BoxStyle {
  Tone tone = Tone::plain;
  Border border = Border::solid;
  double depth = 0;       ///< 0: the light shade of the tone; up to 1: the strong one
  double radius = 2;      ///< of the corners
  std::string hint = {};  ///< shown while the mouse is over the box
};

enum class Anchor : std::uint8_t { start, middle, end };

struct TextStyle {
  Anchor anchor = Anchor::start;
  double size = 13;
  bool bold = false;
  bool muted = false;
};

/// How a line leaves its beginning and reaches its end.
enum class Bend : std::uint8_t { straight, horizontal, vertical };

struct LineStyle {
  Tone tone = Tone::plain;
  Bend bend = Bend::straight;
  double width = 1.5;
  bool arrow = false;
  bool dashed = false;
};

/// About the width of `text` in the widest of the usual fonts.
double text_width(std::string_view text, double size);

class Drawing {
 public:
  /// `title` names the picture, `description` says in a few sentences what it shows, for those who cannot see it.
  Drawing(std::string title, std::string description);

  void box(const Rect& rect, const BoxStyle& style);
  void polygon(const std::vector<Point>& corners, Tone tone);
  void line(Point from, Point to, const LineStyle& style = {});
  /// Centred on `at.y`, and placed by `style.anchor` on `at.x`.
  void text(Point at, std::string_view content, const TextStyle& style = {});
  /// A box with text in its middle.
  void label(const Rect& rect, const BoxStyle& style, std::string_view content, const TextStyle& text_style = {});

  std::string svg(double width, double height) const;

 private:
  std::string title_, description_, body_;
};

}  // namespace trireme::pictures
