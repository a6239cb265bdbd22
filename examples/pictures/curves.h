// The picture of plot --svg: loss and validation loss of runs. Read next: ops/plot/curves.h, ops/plot/svg.h.
#pragma once

#include <string>
#include <vector>

#include "ops/plot/curves.h"

namespace trireme::pictures {

/// An SVG document. The loss of each run is a line, its validation losses are points. Every run must have a point.
std::string draw_curves(const std::vector<RunCurves>& runs);

}  // namespace trireme::pictures
