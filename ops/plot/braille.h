// Curves drawn with text. A character of braille has two by four dots, so a chart of 60 by 15 characters has 120 by 60
// of them. Curves have no colours: with several runs, letters on the curves name them.
//
//   3.4 |\              the real one has dots of braille; o: a validation loss
//   2.8 | \_o___
//   2.2 |       ----o
//       +------------
//       0    100  200
//
// Read next: ops/plot/curves.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ops/plot/curves.h"
#include "train/program/screen.h"

namespace trireme {

struct ChartSize {
  int columns = 80, rows = 20;  ///< of the whole text: labels and legend included; at least 30 and 8
};

/// As wide as the screen, up to 100 columns, and not higher than it. Nothing for a window that is too small: below 40
/// columns or 15 rows.
std::optional<ChartSize> chart_size(const Screen& screen);

/// Lines of at most `size.columns`. `unicode`: with braille, otherwise in ASCII. Every run must have a point.
std::string draw_curves(const std::vector<RunCurves>& runs, ChartSize size, bool unicode);

}  // namespace trireme
