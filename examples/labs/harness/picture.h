// Pictures of a lab's run, as text and as SVG: what each rank did when.
#pragma once

#include <string>

#include "examples/labs/harness/clock.h"

namespace trireme::labs {

/// Two lines a rank: its own, and its background tasks, `columns` wide; and a line that says what the signs mean.
std::string draw_text(const Timeline& timeline, int columns = 72);

/// An SVG document of the same, with what was computed, and from and to whom messages went.
std::string draw_svg(const Timeline& timeline, const std::string& title);

}  // namespace trireme::labs
